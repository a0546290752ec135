"""FedMR as a FLamby strategy, to stand beside ``flamby.strategies.FedAvg`` in FLamby's own scripts.

FLamby calls a strategy with data loaders, a model and a budget, and ``run()`` gives one model per client. The losses
and prototypes are those of a FLARE job; what is averaged, and how, is as in FLamby: parameters by the number of
samples, while each client keeps its own BatchNorm statistics and its own optimiser.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedmr_med.errors import ConfigError
from fedmr_med.lab.flamby.loaders import class_numbers, endless, generators_kept, in_order
from fedmr_med.lab.flamby.probe import Probe
from fedmr_med.methods import fedmr
from fedmr_med.methods.reshaping import ManifoldReshaping, ReshapingOptions, Variant
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.schema import validated
from fedmr_med.seeding import derive_seed
from fedmr_med.site.raw_features import check_not_raw

Loss = Callable[[Tensor, Tensor], Tensor]

_PAPER_WEIGHT = 0.001  # of both losses of the paper, beside FLamby's


class FedMR:
    """Federated averaging with manifold reshaping (Fan et al., TMLR 2023).

    ``variant="replayed"`` is the toolkit's default: the anchor, the replay of prototypes of classes that a client
    lacks, prototypes that move slowly, and its server momentum; a closed-form head is not made. With
    ``variant="paper"`` and both coefficients 0 it is FLamby's FedAvg, bit for bit.

    The arguments of FLamby's own strategies mean what they mean there; one optimiser per client lives through all
    rounds, and the model, which ends in a linear layer (:class:`fedmr_med.lab.flamby.probe.Probe`), is copied.

    Args:
        training_dataloaders: one per client. Labels are (B,) or (B, 1) class numbers of any type.
        loss: (output of the model, labels) -> mean loss.
        mu1, mu2: weights of the intra-class and the inter-class or anchor loss; None takes .001 each for the paper's,
            and the variant's own for the others.
        share: whether each client shares its prototypes; None lets all share. A client that opts out still gets the
            global prototypes and trains with all terms.
        num_classes: None takes the outputs of the linear layer, and 2 where that has a single one.
        reshaping: other options of :class:`fedmr_med.methods.reshaping.ReshapingOptions`, such as ``lite``.
        prototype_dataloaders: what the prototypes are made of; None goes through the datasets of the training
            loaders in order, with whatever augmentation they have.
        dp_target_epsilon, dp_target_delta, dp_max_grad_norm: not supported, must be None.
        log, log_period, logdir, log_basename: write the terms of the loss for TensorBoard, every so many batches.
        bits_counting_function: called with the arrays that a client sends in a round.
        seed: of the hidden layer, and of what FedMR Lite draws.
        variant: ``paper``, or another of the :class:`fedmr_med.methods.reshaping.ReshapingOptions`.
        hidden: units of a hidden layer before the linear layer of a model that has no other: the feature of such a
            model is raw input, of which no prototype is made.

    Raises:
        ConfigError: an argument is not supported or does not fit the others.
    """

    def __init__(
        self,
        training_dataloaders: Sequence[Any],
        model: nn.Module,
        loss: Loss,
        optimizer_class: Callable[..., torch.optim.Optimizer],
        learning_rate: float,
        num_updates: int,
        nrounds: int,
        mu1: float | None = None,
        mu2: float | None = None,
        share: Sequence[bool] | None = None,
        num_classes: int | None = None,
        reshaping: dict[str, Any] | None = None,
        prototype_dataloaders: Sequence[Any] | None = None,
        dp_target_epsilon: float | None = None,
        dp_target_delta: float | None = None,
        dp_max_grad_norm: float | None = None,
        log: bool = False,
        log_period: int = 100,
        bits_counting_function: Callable[[list[Any]], int] | None = None,
        logdir: str = "./runs",
        log_basename: str = "fed_mr",
        seed: int | None = None,
        variant: Variant = "paper",
        hidden: int | None = None,
    ) -> None:
        if any(value is not None for value in (dp_target_epsilon, dp_target_delta, dp_max_grad_norm)):
            why = "has no differentially private training (dp_*): its guarantee would not cover the prototypes"
            raise ConfigError(f"fedmr_med.lab.flamby.FedMR {why}.", code="config.conflict", key="dp")
        clients = len(training_dataloaders)
        for name, given in (("share", share), ("prototype_dataloaders", prototype_dataloaders)):
            if given is not None and len(given) != clients:
                why = f"{name} has {len(given)} entries for {clients} clients."
                raise ConfigError(why, code="config.value", key=name)
        self.share = [True] * clients if share is None else list(share)
        if prototype_dataloaders is None:
            prototype_dataloaders = [in_order(loader) for loader in training_dataloaders]
        usual = {"mu1": _PAPER_WEIGHT, "mu2": _PAPER_WEIGHT} if variant == "paper" else {}
        weights = {name: weight for name, weight in (("mu1", mu1), ("mu2", mu2)) if weight is not None}
        own = usual | weights | (reshaping or {}) | {"variant": variant}
        self.options = validated(ReshapingOptions, own, "FedMR")
        method = fedmr.FedMR(fedmr.FedMROptions(**self.options.model_dump(exclude_unset=True)))
        self._momentum = method.server_optimizer.momentum
        self._velocity: list[Tensor] = []
        self.nrounds = nrounds
        self.num_updates = num_updates
        self.bits_counting_function = bits_counting_function
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self._seed = seed or 0
        self.networks = [Probe(copy.deepcopy(model), hidden, self._seed).to(self.device) for _ in range(clients)]
        outputs = self.networks[0].classifier.out_features
        self.num_classes = num_classes or max(outputs, 2)
        self.prototypes = Prototypes.none(self.num_classes, self.networks[0].feature_size)
        self._own = [self.prototypes] * clients
        self._loss = [copy.deepcopy(loss) for _ in range(clients)]
        self._optimizers = [optimizer_class(network.parameters(), learning_rate) for network in self.networks]
        self._prototype_loaders = prototype_dataloaders
        self.training_sizes = [len(loader.dataset) for loader in training_dataloaders]
        counts = self.options.negatives == "local" or self.options.replay > 0
        self._held = [self._held_classes(loader if counts else ()) for loader in prototype_dataloaders]
        self._batches = [endless(loader) for loader in training_dataloaders]
        self._log_period = log_period
        self._writer: Any = None
        if log:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(log_dir=f"{logdir}/{log_basename}")
        self._round = 0

    def run(self) -> list[nn.Module]:
        """Perform all rounds and return the model of each client: equal parameters, each client's own buffers."""
        for _ in range(self.nrounds):
            self.perform_round()
        return [network.model for network in self.networks]

    def perform_round(self) -> None:
        """Train every client, average what changed by the number of samples, renew the prototypes."""
        changes: list[list[Tensor]] = []
        shared = ClassSums.zeros(*self.prototypes.means.shape)
        for client, network in enumerate(self.networks):
            before = [parameter.detach().clone() for parameter in network.parameters()]
            self._train(client)
            change = [new.detach() - old for new, old in zip(network.parameters(), before, strict=True)]
            sums = self._shared_sums(client)
            if sums is not None:
                shared = shared + sums
            if self.bits_counting_function is not None:
                sent = [*change, *([] if sums is None else [sums.sums.float(), sums.counts.float()])]
                self.bits_counting_function([tensor.cpu().numpy() for tensor in sent])
            changes.append(change)
            with torch.no_grad():
                for parameter, value in zip(network.parameters(), before, strict=True):
                    parameter.copy_(value)
        self._add(_weighted_mean(changes, self.training_sizes))
        self.prototypes = self.prototypes.updated(shared, self.options.inertia)
        self._round += 1

    def _train(self, client: int) -> None:
        """Train one client's network in place for ``num_updates`` batches."""
        network, optimizer = self.networks[client], self._optimizers[client]
        terms_of = self._reshaping(client).terms
        network.train()
        for step in range(self.num_updates):
            images, labels = (tensor.to(self.device) for tensor in next(self._batches[client]))
            features, output = network(images)
            classification = self._loss[client](output, labels)
            classes = class_numbers(labels, self.num_classes)
            terms = {"classification": classification} | terms_of(features, classes)
            torch.stack([*terms.values()]).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            if self._writer is not None and step % self._log_period == 0:
                at = self._round * self.num_updates + step
                for name, term in terms.items():
                    self._writer.add_scalar(f"client{client}/train/{name}", term.item(), at)

    def _shared_sums(self, client: int) -> ClassSums | None:
        """Return the class sums that a client shares; one that opts out keeps its own prototypes, where they count."""
        opted_out = not self.share[client]
        if not self.options.needs_prototypes or (opted_out and not self.options.keeps_own_prototypes):
            return None
        sums = self._class_sums(client)
        if opted_out:
            self._own[client] = self._own[client].updated(sums, self.options.inertia)
        return None if opted_out else sums

    def _reshaping(self, client: int) -> ManifoldReshaping:
        """Return the losses of a client in this round."""
        seed = derive_seed(self._seed, client, self._round, "method")
        return ManifoldReshaping(
            self.options,
            self.prototypes,
            held=self._held[client].to(self.device),
            classify=self.networks[client].classify,
            generator=torch.Generator().manual_seed(seed),
            own=self._own[client] if self.options.keeps_own_prototypes else None,
        )

    @torch.no_grad()
    def _class_sums(self, client: int) -> ClassSums:
        """Return the per-class sums of a client's features, in one pass in evaluation mode."""
        network = self.networks[client].eval()
        sums = ClassSums.zeros(*self.prototypes.means.shape)
        with generators_kept():
            for number, (images, labels) in enumerate(self._prototype_loaders[client]):
                if number == 0:
                    check_not_raw(network, images.to(self.device))
                features, classes = network(images.to(self.device))[0], class_numbers(labels, self.num_classes)
                sums = sums + ClassSums.from_features(features, classes, self.num_classes)
        return sums

    def _held_classes(self, loader: Iterable[Any]) -> Tensor:
        """Return the mask (C,) of the classes that occur in a loader."""
        held = torch.zeros(self.num_classes, dtype=torch.bool)
        with generators_kept():
            for _, labels in loader:
                held[class_numbers(labels, self.num_classes)] = True
        return held

    @torch.no_grad()
    def _add(self, change: list[Tensor]) -> None:
        """Add a change to the parameters of all clients, with the momentum of the variant."""
        if self._velocity:
            change = [self._momentum * old + new for old, new in zip(self._velocity, change, strict=True)]
        self._velocity = change if self._momentum else []
        for network in self.networks:
            for parameter, difference in zip(network.parameters(), change, strict=True):
                parameter.add_(difference)


def _weighted_mean(changes: list[list[Tensor]], sizes: list[int]) -> list[Tensor]:
    """Average the clients' changes, each a list of tensors, with FLamby's arithmetic: float32, divided at the end."""
    weighted = ([tensor * size for tensor in change] for change, size in zip(changes, sizes, strict=True))
    return [sum(tensors[1:], tensors[0]) / float(sum(sizes)) for tensors in zip(*weighted, strict=True)]
