"""What a federated method is: a client half, a server half, and the options they share.

One file per method holds both halves. A method is registered by name, with :func:`register` or from another package by
an entry point (:mod:`fedmr_med.registry`); a job picks it by that name. Everything here is plain tensors and arrays:
FLARE is not known.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedmr_med.arrays import Arrays, Forms
from fedmr_med.config import MethodConfig, ServerConfig
from fedmr_med.errors import ConfigError
from fedmr_med.methods.etf import EtfNetwork
from fedmr_med.methods.local import Batch, LocalResult, LocalRound
from fedmr_med.methods.logits import LogitsOptions, MissingClasses
from fedmr_med.methods.reshaping import ManifoldReshaping, ReshapingOptions
from fedmr_med.network import Network
from fedmr_med.registry import Registry
from fedmr_med.schema import Strict, validated
from fedmr_med.statistics.model_sums import Contribution, Sums

__all__ = [
    "METHODS",
    "Arrays",
    "Batch",
    "ClientHalf",
    "Contribution",
    "LocalResult",
    "LocalRound",
    "Method",
    "Options",
    "ServerHalf",
    "Sums",
    "available",
    "build",
    "register",
]


class ClientHalf:
    """The client half of FedAvg, and the hooks that other methods override.

    Attributes:
        parameters: the network's parameters by name, as they change in training.
        reshaping: FedMR's losses to add to the method's own objective, or None.
        missing: what is done about classes that the site does not hold.
    """

    def __init__(self, options: Any, local: LocalRound):
        self.options = options
        self.local = local
        self.parameters: dict[str, Tensor] = dict(local.network.named_parameters())
        self.reshaping: ManifoldReshaping | None = None
        self.missing: MissingClasses | None = None

    def seen_logits(self, logits: Tensor) -> Tensor:
        """Return the logits (B, C) that the classification loss sees, given those of the network."""
        return logits if self.missing is None else self.missing.seen(logits)

    def objective(self, batch: Batch) -> dict[str, Tensor]:
        """Return the weighted terms that depend on the images, by name; their sum and the penalties' is minimised."""
        terms = {"classification": batch.classification}
        if self.missing is not None:
            terms |= self.missing.terms(batch)
        return terms if self.reshaping is None else terms | self.reshaping.terms(batch.features, batch.labels)

    def penalties(self) -> dict[str, Tensor]:
        """Return the weighted terms that depend on :attr:`parameters` alone, by name."""
        return {}

    def after_backward(self) -> None:
        """Change the gradients before the optimiser's step."""

    def finish(self, trained: Mapping[str, Tensor]) -> LocalResult:
        """Close the round, given the trained parameters by name."""
        return LocalResult()


class ServerHalf:
    """The server half of FedAvg, and the hooks that other methods override.

    Parameters only: buffers (BatchNorm statistics) are averaged by the aggregation for all methods alike.
    """

    def __init__(self, options: Any):
        self.options = options

    def initial_state(self, parameters: Arrays) -> Arrays:
        """Return the server state before the first round."""
        return {}

    def client_view(self, state: Arrays) -> Arrays:
        """Return the part of the state that the sites receive."""
        return state

    def payload_forms(self, parameters: Arrays) -> Forms:
        """Return shape and type of every array a reply's payload must hold, by name."""
        return {}

    def check_payload(self, payload: Arrays) -> None:
        """Look at the values of a payload whose names, shapes and types are right, before any of it counts.

        Raises:
            WireError: with the reason.
        """

    def add(self, sums: Sums, contribution: Contribution, parameters: Arrays) -> None:
        """Add one contribution. ``parameters`` are the global ones the round started from."""
        local = {name: contribution.model[name] for name in parameters}
        sums.add("parameters", local, contribution.samples)
        sums.add_number("samples", contribution.samples)

    def finish(self, sums: Sums, parameters: Arrays, state: Arrays, num_sites: int) -> tuple[Arrays, Arrays]:
        """Return the new global parameters and server state.

        Args:
            sums: of all contributions of the round.
            parameters: the global ones the round started from.
            state: the server state the round started from.
            num_sites: sites of the federation, whether or not they took part.
        """
        return sums.mean("parameters", sums.numbers["samples"]), state

    def averaged(self, parameters: Arrays, state: Arrays, num_sites: int) -> Arrays:
        """Return the parameters to score and to let leave, where they are not those that the next round starts from.

        Args:
            parameters, state: what :meth:`finish` returned.
            num_sites: sites of the federation, whether or not they took part.
        """
        return {}


class ClassifierOptions(Strict):
    """What every method may do about classes that a site does not hold.

    Attributes:
        logits: see :mod:`fedmr_med.methods.logits`.
        classifier: ``linear``, the network's own; or ``etf``, see :mod:`fedmr_med.methods.etf`.
    """

    logits: LogitsOptions = LogitsOptions()
    classifier: Literal["linear", "etf"] = "linear"


class Options(ClassifierOptions):
    """Options every method takes.

    Attributes:
        reshaping: FedMR's losses, and with them its prototypes, added to the method's own objective; None adds
            nothing.
    """

    reshaping: ReshapingOptions | None = None


class Method:
    """A federated method: its name, its options and its two halves.

    Attributes:
        keeps_state: whether a site keeps something of its own from round to round.
        exact_wire: whether server and sites must go by the same parameters to the last bit, so that float16 on the wire
            would let them drift apart.
        adds_up: whether the server half needs no more than sums over the replies, as ``federation.secure: all`` has.
        per_sample: whether ``objective`` is a mean over images, and all that does not depend on images is in
            ``penalties``: private training takes the gradient of each image alone. A method has to say so itself.
    """

    name: ClassVar[str]
    options_type: ClassVar[type[Strict]] = Options
    client_half: ClassVar[type[ClientHalf]] = ClientHalf
    server_half: ClassVar[type[ServerHalf]] = ServerHalf
    keeps_state: ClassVar[bool] = False
    exact_wire: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True
    per_sample: ClassVar[bool] = False

    def __init__(self, options: Any):
        self.options = options

    def check_per_sample(self) -> None:
        """Look whether the method, with these options, can train on the gradient of each image alone.

        Raises:
            ConfigError: its objective mixes images or uses the site's class counts; names the key.
        """
        if not self.per_sample:
            raise ConfigError(
                f"method.name: {self.name} does not say that it goes with train.private (per_sample).",
                code="config.conflict",
                key="method.name",
            )
        if self.options.logits.kind != "plain":
            raise ConfigError(
                f"method.options.logits.kind: {self.options.logits.kind} trains with the site's class counts, which "
                "train.private would not protect; use plain.",
                code="config.conflict",
                key="method.options.logits.kind",
            )
        if self.reshaping is not None and (problem := self.reshaping.mixes_images):
            raise ConfigError(
                f"method.options: {problem} does not go with train.private.",
                code="config.conflict",
                key="method.options",
            )

    @property
    def reshaping(self) -> ReshapingOptions | None:
        """FedMR's losses, if they are added to the objective."""
        reshaping: ReshapingOptions | None = self.options.reshaping
        return reshaping

    @property
    def uses_prototypes(self) -> bool:
        """Whether sites are asked for class sums, where their policy allows it."""
        return self.reshaping is not None and self.reshaping.needs_prototypes

    @property
    def unit_prototypes(self) -> bool:
        """Whether class sums are of features scaled to unit length."""
        return False

    @property
    def variant(self) -> str | None:
        """Which variant of the method this is, for tables; None where there is only one."""
        return None

    @property
    def prototype_inertia(self) -> float:
        """Share of the old global prototype that stays when a class is shared again."""
        return 0.0 if self.reshaping is None else self.reshaping.inertia

    @property
    def server_optimizer(self) -> ServerConfig:
        """The server's optimiser where the job names none."""
        return ServerConfig()

    @property
    def head_exchange(self) -> Literal["none", "last"]:
        """When sites are asked for the statistics of a closed-form head, where the job does not say."""
        return "none"

    def adapt(self, network: Network) -> Network:
        """Return the network to train, made from the job's; the same on the server and at every site.

        Raises:
            ConfigError: its features are too short for the options.
        """
        classes = network.classifier.out_features
        one_hot = self.reshaping is not None and self.reshaping.prototypes == "one_hot"
        if one_hot and network.feature_size < classes:
            raise ConfigError(
                f"method.options.prototypes: one_hot needs features of at least {classes} numbers for {classes} "
                f"classes, and the network has {network.feature_size}.",
                code="config.too-few-features",
                key="method.options.prototypes",
            )
        if self.options.classifier == "linear":
            return network
        # Networks are built in a stream of the job's seed: its start does not depend on what was drawn since.
        return EtfNetwork(network, torch.initial_seed())

    def client(self, local: LocalRound) -> ClientHalf:
        """Start the client half for one round."""
        half = self.client_half(self.options, local)
        if self.reshaping is not None:
            half.reshaping = ManifoldReshaping(
                self.reshaping,
                local.prototypes,
                held=local.local_classes,
                classify=local.network.classifier,
                generator=local.generator,
                own=local.own,
            )
        if self.options.logits.kind != "plain":
            half.missing = MissingClasses(self.options.logits, local)
        return half

    def server(self) -> ServerHalf:
        """Start the server half."""
        return self.server_half(self.options)


METHODS: Registry[type[Method]] = Registry(
    "method",
    group="fedmr_med.methods",
    fits=lambda name, item: isinstance(item, type) and issubclass(item, Method) and item.name == name,
)


def register(method: type[Method]) -> type[Method]:
    """Class decorator: make a method known by its name. A package of its own may use an entry point instead."""
    return METHODS.add(method.name, method)


def available() -> tuple[str, ...]:
    """Return the names of all methods: the paper's eight, then what is registered besides."""
    return METHODS.names()


def build(config: MethodConfig) -> Method:
    """Return a method by name.

    Raises:
        ConfigError: the name is unknown, or an option is.
    """
    method = METHODS.get(config.name, "method.name")
    return method(
        validated(method.options_type, config.options, f"method.options of {config.name}", section="method.options")
    )
