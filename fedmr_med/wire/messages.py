"""What passes between server and sites, and the form that it must have: plain dataclasses of numpy arrays."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from fedmr_med.arrays import Arrays, add_to_hash
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.statistics.base import ReadStatistic
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.statistics.scores import SCORES

T = TypeVar("T")


@dataclass(frozen=True)
class Backbone:
    """The frozen part of a network, which no round changes: everything but its classifier.

    The server sends the arrays until a site has answered with them; the digest alone is enough afterwards, since the
    site has its features on disk (:mod:`fedmr_med.site.features`).

    Attributes:
        digest: of names, types, shapes and values: 32 hexadecimal digits.
        arrays: weights and buffers by name; empty where the digest alone is sent.
    """

    digest: str
    arrays: Arrays

    @classmethod
    def of(cls, arrays: Arrays) -> "Backbone":
        """Return the backbone that consists of these arrays."""
        return cls(digest_of(arrays), arrays)

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def named(self) -> "Backbone":
        """Return its name alone, without the arrays."""
        return replace(self, arrays={})


def digest_of(arrays: Arrays) -> str:
    """Return a hash of names, types, shapes and values."""
    found = hashlib.blake2b(digest_size=16)
    add_to_hash(found, arrays)
    return found.hexdigest()


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

        Server and sites find the name by themselves. All that the task asks is in it. A site opens a name once, with
        one vector: a chain that was rolled back would else get the total of another model, and the two validations of
        a round one total for both. And sites of which a server asks different things have no sum in common: where all
        others are asked what gives zeros, a total is one site's own (Pasquini et al., CCS 2022).
        """
        return f"{kind}-{self.round}-{self.digest}"

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of all that the task has a site train from, score, or take from its own disk."""
        found = hashlib.sha256()
        asked = {"model": self.model, "method": self.method, "averaged": self.averaged}
        for part, arrays in (asked | {"prototypes": self.prototypes.arrays()}).items():
            found.update(f"{part} {len(arrays)} ".encode())
            add_to_hash(found, arrays)
        found.update(f"{sorted(self.accepted.items())} {self.backbone and self.backbone.digest}".encode())
        return found.hexdigest()


@dataclass(frozen=True)
class SiteReply:
    """What a site answers to an exchange; each field is empty where the exchange asks for none, or nothing may leave.

    Attributes:
        round: number of the round from 0, for ``head`` the completed rounds of the model that made the features.
        samples: number of its training images.
        settings: digest of the site's settings of the job.
        model: the trained weights and buffers.
        payload: what the method's client half adds.
        report: local facts for the summary; None where the policy allows none.
        statistics: content by part, as :mod:`fedmr_med.statistics` has it; one that it does not share is not there.
        bytes_up, bytes_down: size of the arrays sent and received.
    """

    site: str
    round: int = 0
    samples: int = 0
    settings: str = ""
    model: Arrays = field(default_factory=dict)
    payload: Arrays = field(default_factory=dict)
    report: SiteReport | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0

    def of(self, statistic: ReadStatistic[T]) -> T | None:
        """Return what it holds of a statistic; None where it shares nothing."""
        content: T | None = self.statistics.get(statistic.part)
        return content

    def with_statistic(self, statistic: ReadStatistic[T], content: T | None) -> "SiteReply":
        """Return the reply with another content of a statistic; without it where that is None."""
        others = {part: held for part, held in self.statistics.items() if part != statistic.part}
        return replace(self, statistics=others if content is None else others | {statistic.part: content})

    @property
    def prototypes(self) -> ClassSums | None:
        """The class sums of the classes it shares, zero elsewhere."""
        return self.of(PROTOTYPES)

    @property
    def scores(self) -> Scores | None:
        """How the *received* model did on its test set."""
        return self.of(SCORES)
