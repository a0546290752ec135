"""What the client half of a method works with during one local round: plain tensors and arrays."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fedmr_med.arrays import Arrays
from fedmr_med.network import Network
from fedmr_med.prototypes import Prototypes


@dataclass(frozen=True)
class Batch:
    """One mini-batch on its way through the loss.

    Attributes:
        images: (B, ...) network input.
        labels: (B,) int64.
        features: (B, d) features that feed the classifier.
        logits: (B, C).
        classification: the mean classification loss, a scalar.
    """

    images: Tensor
    labels: Tensor
    features: Tensor
    logits: Tensor
    classification: Tensor

    @property
    def exact_features(self) -> Tensor:
        """The features in float32 or better, whatever the precision of the forward pass."""
        return self.features.to(torch.promote_types(self.features.dtype, torch.float32))

    @property
    def exact_logits(self) -> Tensor:
        """The logits in float32 or better."""
        return self.logits.to(torch.promote_types(self.logits.dtype, torch.float32))


class Frozen:
    """A copy of a network that stays as it was while the network itself is trained, in evaluation mode.

    Attributes:
        network: the copy.
    """

    def __init__(self, network: Network):
        self.network = copy.deepcopy(network).eval()
        self._last: tuple[Tensor, tuple[Tensor, Tensor]] | None = None

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return features (B, d) and logits (B, C) of a batch; asking again for the same batch costs nothing."""
        if self._last is None or self._last[0] is not batch.images:
            half = batch.logits.dtype == torch.bfloat16  # the trained network ran in mixed precision
            with torch.autocast(batch.images.device.type, dtype=torch.bfloat16, enabled=half):
                self._last = batch.images, self.network(batch.images)
        return self._last[1]


@dataclass(frozen=True)
class LocalRound:
    """What the client half of a method may use during one round.

    Attributes:
        network: the model being trained, already holding the global weights.
        received: the global parameters (not buffers) by name, detached.
        prototypes: the global prototypes.
        own: prototypes of classes that this site holds and does not share, from its own last rounds; None where the
            method keeps none.
        counts: (C,) int64, this site's training images per class. They must not leave it.
        server_state: what the server half sent along.
        client_state: what this site kept from the last round the server accepted; empty at first.
        samples: number of local training images as the server hears it: rounded, where the policy says so.
        steps: number of local steps of this round.
        lr, momentum: of the local optimiser; momentum is 0 for an optimiser that has none in SGD's sense.
        round, rounds: number of this round, from 0, and rounds of the whole chain.
        generator: random numbers of this round, for what the method draws itself.
    """

    network: Network
    received: Mapping[str, Tensor]
    prototypes: Prototypes
    counts: Tensor
    server_state: Arrays
    client_state: Arrays
    samples: int
    steps: int
    lr: float
    momentum: float
    round: int
    rounds: int
    generator: torch.Generator
    own: Prototypes | None = None

    @property
    def local_classes(self) -> Tensor:
        """The classes this site holds, (C,) bool."""
        return self.counts > 0

    @cached_property
    def received_model(self) -> Frozen:
        """The received model, frozen; to be asked for before the training starts."""
        return Frozen(self.network)

    @property
    def effective_steps(self) -> float:
        """How many plain SGD steps the local steps weigh as much as, momentum from zero included (FedNova's a_k).

        With tau steps and momentum rho: [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho); tau without momentum.
        """
        tau, rho = self.steps, self.momentum
        return (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)


@dataclass(frozen=True)
class LocalResult:
    """What the client half adds to a site's reply (``payload``) and keeps for itself (``state``)."""

    payload: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)
