"""A federation of real parts (hospitals, methods, aggregation) on a handful of tiny pictures."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedmr_med import methods, models
from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.methods.local import LocalRound
from fedmr_med.models import Network
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import Prototypes
from fedmr_med.server.aggregation import PrototypeAggregator
from fedmr_med.server.state import GlobalState, train_task
from fedmr_med.site.hospital import Hospital
from fedmr_med.sites import BenchmarkSource, SiteConfig
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers import reference
from tests.helpers.replies import reply_check
from tests.helpers.small import lenient

NAMES = ("fedavg", "fedprox", "fedproc", "fednova", "moon", "feddyn", "feddc", "fedmr", "scaffold")
CLASSES, EDGE, FEATURES = 5, 3, 4
# Classes and sizes: with batches of 5 they train 1, 2 and 4 steps an epoch; nobody holds class 4.
HOLDINGS = {"a": ((0, 1), 6), "b": ((1, 2), 11), "c": ((2, 3, 0), 18)}
POLICY = lenient(share_prototypes=True, min_class_count=1, share_metrics="per_class", round_samples=1)


class Tiny(Network):
    """One hidden layer, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_size = FEATURES
        self.hidden = nn.Linear(EDGE * EDGE, FEATURES)
        self.classifier = nn.Linear(FEATURES, CLASSES)
        self.double()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.tanh(self.hidden(x.flatten(1).double()))
        return features, self.classifier(features)


class WithBatchNorm(Network):
    """Convolution, BatchNorm, ReLU, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_size = 8
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.3)
        self.classifier = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.dropout(torch.relu(self.norm(self.conv(x)))).mean(dim=(2, 3))
        return features, self.classifier(features)


def job(method: str, rounds: int = 3, train: dict[str, Any] | None = None, **options: Any) -> JobConfig:
    """Return a job on 3 x 3 pixels with momentum and weight decay."""
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "batch_size": 5, "augment": False}
    return JobConfig.model_validate(
        {
            "name": "tiny",
            "task": {
                "dataset": "tiny",
                "class_names": [f"class{c}" for c in range(CLASSES)],
                "image_size": EDGE,
                "channels": 1,
                "transform": "plain",
            },
            "model": {"name": "small_cnn"},
            "method": {"name": method, "options": options},
            "train": settings | (train or {"epochs": 2}),
            "federation": {"rounds": rounds},
        }
    )


def site_data(classes: Sequence[int], size: int, seed: int) -> SiteData:
    """Return noise whose level depends on the class."""
    generator = np.random.default_rng(seed)
    labels = np.array([classes[i % len(classes)] for i in range(size)], dtype=np.int64)
    items = generator.integers(0, 120, (size, EDGE, EDGE, 1)) + 30 * labels[:, None, None, None]
    fold = Fold(items.astype(np.uint8), labels)
    return SiteData(fold, fold, tuple(f"class{c}" for c in range(CLASSES)))


class Federation:
    """Sites, server state and the rounds between them.

    Args:
        folder: where sites keep their state.
        network: the class of the network; every site has its own.
        holdings: classes and number of samples of each site.
        policy: of all sites.
    """

    def __init__(
        self,
        config: JobConfig,
        folder: Path,
        network: type[Network] = Tiny,
        holdings: dict[str, tuple[Sequence[int], int]] | None = None,
        policy: SitePolicy = POLICY,
    ):
        self.policy = policy
        self.job, self.folder, self.network = config, folder, network
        self.holdings = holdings or HOLDINGS
        self.method = methods.build(config.method)
        self.sites = {name: self.open(name) for name in self.holdings}
        initial = self._network()
        model, names = models.state_arrays(initial), models.parameter_names(initial)
        self.state = GlobalState(
            model=model,
            parameters=names,
            prototypes=Prototypes.none(CLASSES, initial.feature_size),
            method=self.method.server().initial_state({n: a for n, a in model.items() if n in names}),
        )

    def open(self, name: str) -> Hospital:
        """Open a site as a new process would."""
        classes, size = self.holdings[name]
        data = site_data(classes, size, seed=list(self.holdings).index(name))
        source = SiteConfig(data=BenchmarkSource(source="benchmark", client=0, clients=1), policy=self.policy)
        return Hospital(name, self.job, source, self.folder / name, network=self._network(), site_data=data)

    def task(self) -> TrainTask:
        return train_task(self.state, self.job, "chain")

    def round(self, participants: Iterable[str] | None = None) -> list[SiteReply]:
        """Run one round and return the replies."""
        replies = [self.sites[name].train(self.task()) for name in participants or self.sites]
        self.close(replies)
        return replies

    def close(self, replies: Iterable[SiteReply]) -> None:
        check, aggregation = reply_check(self.job, self.state), PrototypeAggregator(self.job, self.state)
        for reply in replies:
            check.check(reply)
            aggregation.add(reply)
        self.state = aggregation.finish(num_sites=len(self.sites), refused={})

    def kept(self, name: str) -> dict[str, np.ndarray]:
        """Return what a site keeps on disk after its last accepted round."""
        path = self.folder / name / "chains" / "chain" / self.method.name / f"round-{self.state.accepted[name]:06d}.npz"
        with np.load(path) as content:
            return dict(content)

    def _network(self) -> Network:
        torch.manual_seed(7)
        return self.method.adapt(self.network())


def epochs(hospital: Hospital, round_number: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the batches a site trains on in a round, for the reference."""
    config = hospital.job.train
    stream = (hospital.job.seed, hospital.name, round_number)
    return [
        (x.flatten(1).double().numpy(), y.numpy())
        for epoch in range(config.epochs or 0)
        for x, y in hospital.batches.train.epoch(*stream, epoch, shuffle=True, drop_single=True)
    ]


def compare(
    config: JobConfig,
    rule: type[reference.FedAvg],
    folder: Path,
    participation: Sequence[str] = ("abc", "ac", "abc"),
    policy: SitePolicy = POLICY,
) -> tuple[Federation, reference.FedAvg]:
    """Run a federation and its reference side by side; after every round the global models must agree."""
    federation = Federation(config, folder, policy=policy)
    names = list(federation.sites)
    settings = reference.Settings(
        CLASSES, config.train.lr, config.train.momentum, config.train.weight_decay, config.federation.rounds
    )
    sizes = [policy.rounded_up(size) for _, size in HOLDINGS.values()]
    options = dict(config.method.options)
    options |= options.pop("reshaping", {})
    options.pop("variant", None)
    numpy_side = rule(federation.state.model, sizes, settings, **options)
    everything = {}
    for k, site in enumerate(federation.sites.values()):
        parts = list(site.batches.plain.epoch("all", shuffle=False))
        everything[k] = (
            np.concatenate([x.flatten(1).double().numpy() for x, _ in parts]),
            np.concatenate([y.numpy() for _, y in parts]),
        )
    for number, present in enumerate(participation):
        numpy_side.round({names.index(n): epochs(federation.sites[n], number) for n in present}, everything)
        federation.round(present)
        for name, expected in numpy_side.w.items():
            np.testing.assert_allclose(federation.state.model[name], expected, rtol=0, atol=1e-6)
    return federation, numpy_side


def same_model(a: GlobalState, b: GlobalState) -> bool:
    """Whether two global models are equal bit for bit."""
    return all(np.array_equal(a.model[name], b.model[name]) for name in a.model | b.model)


def local_round(steps: int, momentum: float) -> LocalRound:
    """Return a round of a client with ten samples, before its first step."""
    network = Tiny()
    return LocalRound(
        network=network,
        received={name: p.detach().clone() for name, p in network.named_parameters()},
        prototypes=Prototypes.none(CLASSES, FEATURES),
        counts=torch.full((CLASSES,), 2),
        server_state={},
        client_state={},
        samples=10,
        steps=steps,
        lr=0.1,
        momentum=momentum,
        round=0,
        rounds=1,
        generator=torch.Generator(),
    )
