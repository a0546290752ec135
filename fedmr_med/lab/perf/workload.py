"""What a method costs a client at work on random images: a step, a round, memory, and the prototype pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmr_med import methods, models
from fedmr_med.config import LossConfig, MethodConfig, PrivateTrainConfig, TrainConfig
from fedmr_med.data.base import Fold
from fedmr_med.data.loading import Batches
from fedmr_med.data.transforms import unchanged
from fedmr_med.lab.perf.measure import CPU, Figure, interleaved, ratios
from fedmr_med.losses import EPSILON
from fedmr_med.methods.base import Batch, ClientHalf, LocalRound
from fedmr_med.methods.reshaping import ReshapingOptions
from fedmr_med.prototypes import Prototypes
from fedmr_med.seeding import torch_stream
from fedmr_med.site import criterion, optim
from fedmr_med.site.private_training import private_step
from fedmr_med.site.training import class_sums, train, train_step

BASE, LOOPS = "fedavg", "fedmr (loops)"
EPOCHS = 10  # of a round


@dataclass(frozen=True)
class Case:
    """The sizes of a measurement: a network with options, images of an edge in pixels, batches of an epoch.

    Images are random, half of the classes are present, all have a prototype.
    """

    model: str
    image_size: int
    batch_size: int = 64
    batches: int = 1
    classes: int = 8
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = "".join(f", {name} {value}" for name, value in self.options.items())
        return f"{self.model}{options}, {self.image_size} px, batch {self.batch_size}, {self.classes} classes"


class ReadyBatches(Batches):
    """Batches that lie ready in memory: the data path takes no part in the measurement."""

    def __init__(self, case: Case):
        labels = np.arange(case.batches * case.batch_size, dtype=np.int64) % max(case.classes // 2, 1)
        super().__init__(Fold(np.zeros(len(labels), dtype=np.uint8), labels), unchanged, batch_size=case.batch_size)
        images = torch.randn(len(labels), 3, case.image_size, case.image_size)
        parts = (torch.split(tensor, case.batch_size) for tensor in (images, torch.from_numpy(labels)))
        self.ready = list(zip(*parts, strict=True))

    def epoch(self, *stream: int | str, shuffle: bool, drop_single: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the batches, always in the same order."""
        yield from self.ready


class Client:
    """One client with one method, in a round after the first: what it keeps from the last one is there."""

    def __init__(self, case: Case, method: str, *, epochs: int = 1):
        with torch_stream("perf", str(case)):
            self.network = models.build(case.model, num_classes=case.classes, **case.options)
            self.batches = ReadyBatches(case)
            means = torch.randn(case.classes, self.network.feature_size)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.case = case
        self.config = TrainConfig(batch_size=case.batch_size, epochs=epochs, precision="float32")
        everywhere = torch.ones(case.classes, dtype=torch.bool)
        self.prototypes = Prototypes(means, everywhere, torch.zeros(case.classes, dtype=torch.int64))
        self.loops = method == LOOPS
        self.method = methods.build(MethodConfig(name="fedmr" if self.loops else method))
        self.loss = criterion.build(LossConfig(), np.ones(case.classes, dtype=np.int64))

    def start(self) -> ClientHalf:
        """Start the client half of a round."""
        arrays, names = models.state_arrays(self.network), models.parameter_names(self.network)
        server = self.method.server()
        state = server.initial_state({name: array for name, array in arrays.items() if name in names})
        local = LocalRound(
            network=self.network,
            received={name: p.detach().clone() for name, p in self.network.named_parameters()},
            prototypes=self.prototypes,
            counts=(torch.arange(self.case.classes) < max(self.case.classes // 2, 1)).long(),
            server_state=server.client_view(state),
            # MOON compares with the previous model; the other methods start from zeros, which cost the same.
            client_state=arrays if self.method.name == "moon" else {},
            samples=self.case.batches * self.case.batch_size,
            steps=self.case.batches * (self.config.epochs or 1),
            lr=self.config.lr,
            momentum=self.config.momentum,
            round=1,
            rounds=10,
            generator=torch.Generator().manual_seed(0),
        )
        return LoopClient(ReshapingOptions(), local) if self.loops else self.method.client(local)

    def prepare_steps(self) -> None:
        """Get ready for :meth:`step`."""
        self.network.train()
        self._client = self.start()
        self._optimizer = optim.build(self.network.parameters(), self.config)

    def step(self, batch: tuple[Tensor, Tensor] | None = None) -> None:
        """Train on one batch, of its own unless another is given."""
        train_step(self.network, self._client, self._optimizer, self.loss, *(batch or self.batches.ready[0]))

    def private_step(self) -> None:
        """Train on one batch with clipped and noisy gradients of single images."""
        size = self.case.batch_size
        private_step(
            self.network,
            self._client,
            self._optimizer,
            self.loss,
            self.batches.ready[0],
            PrivateTrainConfig(clip=1.0, noise=1.0),
            precision=self.config.precision,
            shares=np.ones(size),
            expected=size,
        )

    def epochs(self) -> None:
        """Train for the configured epochs, as in a round."""
        train(self.network, self.start(), self.batches, self.loss, self.config, stream=("perf",))

    def prototype_pass(self) -> None:
        """Make the class sums that a site shares after training."""
        class_sums(self.network, self.batches, self.case.classes)

    def round(self) -> None:
        """Train for the configured epochs and, where the method shares prototypes, make the class sums."""
        self.epochs()
        if self.method.uses_prototypes:
            self.prototype_pass()


# FedMR's losses as plain loops over classes and pairs of classes, the way their formulas read. They are what
# :mod:`fedmr_med.losses` is compared with, in speed and, by a test, in value.


def intra_class_loop(features: Tensor, labels: Tensor) -> Tensor:
    """Return the intra-class loss in the ``released`` scale, class by class, by (d, d) correlation matrices."""
    total, samples = features.sum() * 0, 0
    d = features.shape[1]
    for c in torch.unique(labels):
        own = features[labels == c]
        if len(own) < 2:
            continue
        standardised = (own - own.mean(0)) / (own.var(0) + EPSILON).sqrt()
        correlation = standardised.T @ standardised
        off_diagonal = correlation - torch.diag(correlation.diagonal())
        total = total + off_diagonal.square().sum() / (d * (d - 1))
        samples += len(own)
    return total / max(samples, 1)


def inter_class_loop(features: Tensor, labels: Tensor, prototypes: Tensor, available: Tensor) -> Tensor:
    """Return the inter-class loss, pair of classes by pair of classes."""
    total, pairs = features.sum() * 0, 0
    for i in torch.unique(labels):
        if not available[i]:
            continue
        own = features[labels == i]
        to_own = (own - prototypes[i]).norm(dim=1)
        for j in range(len(prototypes)):
            if j == i or not available[j]:
                continue
            total = total + (to_own - (own - prototypes[j]).norm(dim=1)).relu().mean()
            pairs += 1
    return total / max(pairs, 1)


class LoopClient(ClientHalf):
    """The client half of FedMR with the losses above."""

    options: ReshapingOptions

    def __init__(self, options: ReshapingOptions, local: LocalRound):
        super().__init__(options, local)
        self.prototypes = local.prototypes

    def objective(self, batch: Batch) -> dict[str, Tensor]:
        """Add mu1 * intra and mu2 * inter."""
        means, available = self.prototypes.means, self.prototypes.available
        intra = intra_class_loop(batch.features, batch.labels)
        inter = inter_class_loop(batch.features, batch.labels, means, available)
        return super().objective(batch) | {"intra": self.options.mu1 * intra, "inter": self.options.mu2 * inter}


def step_ratios(case: Case, methods: Sequence[str], repetitions: int) -> list[Figure]:
    """Measure a training step of each method against FedAvg's, and of FedMR by plain loops."""
    clients = {name: Client(case, name) for name in dict.fromkeys([BASE, *methods, LOOPS])}
    for client in clients.values():
        client.prepare_steps()
    seconds = interleaved({name: client.step for name, client in clients.items()}, repetitions)
    compared = f"{CPU} of a training step / of FedAvg's step"
    return [Figure.of("step_ratio", name, str(case), compared, ratios(seconds, name, BASE)) for name in clients]


def round_ratios(case: Case, methods: Sequence[str], repetitions: int) -> list[Figure]:
    """Measure a whole local round of each method, prototype pass included, against FedAvg's."""
    clients = {name: Client(case, name, epochs=EPOCHS) for name in dict.fromkeys([BASE, *methods])}
    seconds = interleaved({name: client.round for name, client in clients.items()}, repetitions, warm_up=0)
    compared = f"{CPU} of {EPOCHS} local epochs with the prototype pass, where the method has one / of FedAvg's"
    where = f"{case}, {case.batches} batches"
    return [Figure.of("round_ratio", name, where, compared, ratios(seconds, name, BASE)) for name in clients]


def prototype_pass_ratio(case: Case, repetitions: int) -> list[Figure]:
    """Measure the prototype pass against a training epoch of FedMR on the same batches."""
    client = Client(case, "fedmr")
    seconds = interleaved({"pass": client.prototype_pass, "epoch": client.epochs}, repetitions)
    compared = f"{CPU} of the prototype pass / of a training epoch"
    return [Figure.of("prototype_pass_ratio", case.model, str(case), compared, ratios(seconds, "pass", "epoch"))]


def private_step_ratio(case: Case, repetitions: int) -> list[Figure]:
    """Measure a step of private training against a plain one, of FedMR."""
    client = Client(case, "fedmr")
    client.prepare_steps()
    seconds = interleaved({"private": client.private_step, "plain": client.step}, repetitions)
    compared = f"{CPU} of a step with clipped and noisy gradients (train.private) / of a plain step"
    return [Figure.of("private_step_ratio", case.model, str(case), compared, ratios(seconds, "private", "plain"))]


def memory_ratios(case: Case, methods: Sequence[str]) -> list[Figure]:
    """Measure the peak of all tensors in memory, the network's own included, against FedAvg's."""
    peaks = {name: peak_bytes(case, name) for name in dict.fromkeys([BASE, *methods])}
    compared = "peak bytes of all tensors in two steps / FedAvg's (exact, no spread)"
    return [Figure.of("memory_ratio", name, str(case), compared, [peak / peaks[BASE]]) for name, peak in peaks.items()]


def peak_bytes(case: Case, method: str) -> int:
    """Return the peak of the memory that tensors hold while a client starts and takes two steps."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        client = Client(case, method)
        client.prepare_steps()
        for _ in range(2):
            client.step()
    recorded: Any = profiler.profiler
    events = recorded.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    held = torch.tensor([nbytes for _, nbytes in changes]).cumsum(0)
    return int(held.max())
