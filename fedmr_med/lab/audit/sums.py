"""A secure sum in this process: what the server sees and opens, and what it costs one site and the server."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np

from fedmr_med.arrays import Vector
from fedmr_med.errors import ConfigError, FedMRError
from fedmr_med.schema import Strict
from fedmr_med.secure import FEWEST
from fedmr_med.secure.identity import UNSIGNED, Certified, Identity
from fedmr_med.secure.messages import Confirmation, Masked, Offer, Release, Roster, Shares, threshold
from fedmr_med.secure.participant import Participant
from fedmr_med.secure.summing import SecureSum
from fedmr_med.wire.secure import (
    ASK_CONFIRMED,
    ASK_MASKED,
    ASK_OFFER,
    ASK_SHARES,
    Question,
    encode_answer,
    encode_question,
)

A = TypeVar("A", Offer, Masked, Confirmation, Shares)
RELEASE = Release("chain", "session", "rehearsal")


class SumCost(Strict):
    """The cost of one sum.

    Attributes:
        sites, dropped: sites with keys, and how many of them were lost before they masked.
        numbers: length of the vectors.
        bytes_up, bytes_down: of one site, all steps together; the vector itself is 8 bytes a number of ``bytes_up``.
        site_seconds, server_seconds: CPU time of one site, and of the server.
        seconds: wall time of all of it, one site after the other, waiting for the disk included.
    """

    sites: int
    dropped: int
    numbers: int
    bytes_up: int
    bytes_down: int
    site_seconds: float
    server_seconds: float
    seconds: float


def unsigned(count: int) -> dict[str, Identity]:
    """Return so many made-up sites, which sign nothing."""
    return dict.fromkeys((f"site-{number:04}" for number in range(count)), UNSIGNED)


def certified(kits: Path) -> dict[str, Identity]:
    """Return the sites of a provisioned federation, which sign with their certificates.

    Raises:
        ConfigError: the folder has no sites' kits.
    """
    found = sorted(path.parent.parent for path in kits.glob("*/startup/fed_client.json"))
    if not found:
        why = f"{kits} has no kits of sites: give the folder with one kit per participant."
        raise ConfigError(why, code="site.none", key="--kits")
    return {kit.name: Certified(kit / "startup") for kit in found}


@dataclass
class Rehearsal:
    """One secure sum of sites, each of which holds a vector for :data:`RELEASE`.

    Attributes:
        members: the sites by name.
        size: length of the vectors.
        up, down: bytes of one site.
        sites, server: CPU seconds of all sites, and of the server.
    """

    members: Mapping[str, Participant]
    size: int
    up: int = 0
    down: int = 0
    sites: float = 0.0
    server: float = 0.0

    def masked(self, staying: Sequence[str] | None = None) -> SecureSum:
        """Go on until the masked vectors are in, of those that are staying; None is all."""
        with self._at("sites"):
            keys = [member.keys(RELEASE.chain, RELEASE.session) for member in self.members.values()]
        self.up += encode_answer(keys[0]).size
        roster = Roster.of(keys)
        with self._at("server"):
            self.secure = SecureSum(RELEASE, roster, self.size)
        self._question = Question(ASK_OFFER, RELEASE, "0" * 16, roster)
        offers = self._step(list(self.members), lambda site: site.offer(RELEASE, roster), self.secure.take_offer)
        self._question = replace(self._question, step=ASK_MASKED, offers=tuple(offers))
        names = list(self.members) if staying is None else staying
        self._step(names, lambda site: site.mask(RELEASE, roster, offers), self.secure.take_masked)
        return self.secure

    def total(self) -> Vector:
        """Open the sum of the masked vectors."""
        secure, roster = self.secure, self.secure.roster
        survivors = secure.survivors()
        self._question = replace(self._question, step=ASK_CONFIRMED, offers=(), survivors=survivors)
        said = self._step(survivors, lambda site: site.confirm(RELEASE, roster, survivors), secure.take_confirmation)
        self._question = replace(self._question, step=ASK_SHARES, confirmations=tuple(said))
        self._step(survivors, lambda site: site.unmask(RELEASE, roster, survivors, said), secure.take_shares)
        with self._at("server"):
            return secure.total()

    def _step(self, names: Sequence[str], ask: Callable[[Participant], A], take: Callable[[A], None]) -> list[A]:
        with self._at("sites"):
            answers = [ask(self.members[name]) for name in names]
        with self._at("server"):
            for answer in answers:
                take(answer)
        self.down += encode_question(self._question).size
        self.up += encode_answer(answers[0]).size
        return answers

    @contextmanager
    def _at(self, place: str) -> Iterator[None]:
        started = time.process_time()
        yield
        setattr(self, place, getattr(self, place) + time.process_time() - started)


def sum_cost(identities: Mapping[str, Identity], dropped: int, numbers: int) -> SumCost:
    """Run one sum of vectors of a length, in which some sites are lost before they mask, and measure it.

    Raises:
        ConfigError: so few sites cannot lose so many.
    """
    names = sorted(identities)
    if len(names) < FEWEST or len(names) - dropped < threshold(len(names)):
        why = f"A sum of {len(names)} sites cannot be opened without {dropped} of them."
        raise ConfigError(why, code="secure.too-few-left")
    started, staying = time.perf_counter(), names[dropped:]
    generator, expected = np.random.default_rng(0), np.zeros(numbers, np.uint64)
    with TemporaryDirectory() as folder:
        members = {name: Participant(name, Path(folder) / name, identities[name]) for name in names}
        for name, member in members.items():
            vector = generator.integers(0, 2**40, numbers, dtype=np.uint64)
            member.hold(RELEASE.name, vector)
            if name in staying:
                expected += vector
        rehearsal = Rehearsal(members, numbers)
        rehearsal.masked(staying)
        total = rehearsal.total()
    if not np.array_equal(total, expected):
        raise FedMRError("The secure sum is not the plain sum.", code="secure.wrong-total")
    return SumCost(
        sites=len(names),
        dropped=dropped,
        numbers=numbers,
        bytes_up=rehearsal.up,
        bytes_down=rehearsal.down,
        site_seconds=rehearsal.sites / len(names),
        server_seconds=rehearsal.server,
        seconds=time.perf_counter() - started,
    )
