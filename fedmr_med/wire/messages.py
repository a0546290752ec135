"""What passes between server and sites: plain dataclasses of numpy arrays."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedmr_med.arrays import Arrays
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.statistics.fields import Values
from fedmr_med.wire.backbone import Backbone


@dataclass(frozen=True)
class TrainTask:
    """What the server sends to a site.

    Attributes:
        model: the global weights and buffers.
        method: what the method's server half sends along.
        round: number of this round, from 0.
        rounds: rounds of the whole chain.
        chain: id of the chain, under which a site keeps its own state.
        settings: digest of the server's settings of the job.
        averaged: parameters to score in the place of the model's; empty where the model itself is scored.
        accepted: the last round in which each site's reply counted.
        backbone: the part of the network that is frozen, or its name alone; None where all of it is trained.
        bytes: size of the arrays.
    """

    model: Arrays
    prototypes: Prototypes
    method: Arrays
    round: int
    rounds: int
    chain: str
    settings: str
    averaged: Arrays = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    backbone: Backbone | None = None
    bytes: int = 0

    @property
    def weights(self) -> Arrays:
        """All arrays of the network that were sent, the frozen ones included."""
        return self.model if self.backbone is None else self.backbone.arrays | self.model

    def release(self, kind: str) -> str:
        """Return the name of the statistics that the task leads to, by which secure sums and ledgers know them.

        Server and sites find the name by themselves. The model is in it: a site opens a name once, with one vector, so
        a chain that was rolled back would else get the total of another model, and the two validations of a round one
        total for both.
        """
        return f"{kind}-{self.round}-{self._model_digest}"

    @cached_property
    def _model_digest(self) -> str:
        found = hashlib.blake2b(digest_size=8)
        for name in sorted(self.model):
            found.update(name.encode() + self.model[name].tobytes())
        return found.hexdigest()


@dataclass(frozen=True)
class SiteReply:
    """What a site sends back.

    Attributes:
        samples: number of its training images.
        settings: digest of the site's settings of the job.
        model: the trained weights and buffers.
        prototypes: class sums of the classes it shares, zero elsewhere; None if it shares none.
        payload: what the method's client half adds.
        scores: how the *received* global model did on its test set, as far as the policy allows.
        report: local facts for the summary; None where the policy allows none.
        shared: what it puts into statistics of other packages, by part.
        bytes_up, bytes_down: size of the arrays sent and received.
    """

    site: str
    round: int
    samples: int
    settings: str
    model: Arrays
    prototypes: ClassSums | None = None
    payload: Arrays = field(default_factory=dict)
    scores: Scores | None = None
    report: SiteReport | None = None
    shared: Mapping[str, Values] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True)
class ScoreReply:
    """What a site answers when it scores a model.

    Attributes:
        scores: as far as the policy allows; None where it allows none, or a secure sum takes them.
        shared: what the site puts into statistics of other packages, by part.
    """

    scores: Scores | None
    shared: Mapping[str, Values] = field(default_factory=dict)
