"""What a secure sum costs: bytes and seconds of one site and of the server, measured in this process."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedmr_med.arrays import Vector
from fedmr_med.errors import ConfigError, FedMRError
from fedmr_med.schema import Strict
from fedmr_med.secure import FEWEST
from fedmr_med.secure.identity import UNSIGNED, Certified, Identity
from fedmr_med.secure.messages import Release, Roster, threshold
from fedmr_med.secure.participant import Participant
from fedmr_med.secure.summing import SecureSum
from fedmr_med.wire.secure import Answer, Question, encode_answer, encode_question

CHAIN, SESSION, NAME = "chain", "session", "cost"


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
        raise ConfigError(
            f"{kits} has no kits of sites: give the folder with one kit per participant.",
            code="site.none",
            key="--kits",
        )
    return {kit.name: Certified(kit / "startup") for kit in found}


def sum_cost(identities: Mapping[str, Identity], dropped: int, numbers: int) -> SumCost:
    """Run one sum of vectors of a length, in which some sites are lost before they mask, and measure it.

    Raises:
        ConfigError: so few sites cannot lose so many.
    """
    names = sorted(identities)
    if len(names) < FEWEST or len(names) - dropped < threshold(len(names)):
        raise ConfigError(
            f"A sum of {len(names)} sites cannot be opened without {dropped} of them.", code="secure.too-few-left"
        )
    started, bill = time.perf_counter(), _Bill()
    with TemporaryDirectory() as folder:
        members = {name: Participant(name, Path(folder) / name, identities[name]) for name in names}
        expected = _hold(members, names[dropped:], numbers)
        with bill.at_sites():
            keys = [member.keys(CHAIN, SESSION) for member in members.values()]
        release, roster = Release(CHAIN, SESSION, NAME), Roster.of(keys)
        with bill.at_server():
            secure = SecureSum(release, roster, numbers)
        question = Question("offer", release, "0" * 16, roster)
        bill.note(question, keys[0])
        with bill.at_sites():
            offers = [member.offer(release, roster) for member in members.values()]
        with bill.at_server():
            for offer in offers:
                secure.take_offer(offer)
        bill.note(Question("mask", release, "0" * 16, roster, tuple(offers)), offers[0])
        with bill.at_sites():
            masked = [members[name].mask(release, roster, offers) for name in names[dropped:]]
        with bill.at_server():
            for answer in masked:
                secure.take_masked(answer)
            survivors = secure.survivors()
        bill.note(Question("confirm", release, "0" * 16, roster, (), survivors), masked[0])
        with bill.at_sites():
            confirmations = [members[name].confirm(release, roster, survivors) for name in survivors]
        with bill.at_server():
            for confirmation in confirmations:
                secure.take_confirmation(confirmation)
        question = Question("unmask", release, "0" * 16, roster, (), survivors, tuple(confirmations))
        bill.note(question, confirmations[0])
        with bill.at_sites():
            shares = [members[name].unmask(release, roster, survivors, confirmations) for name in survivors]
        with bill.at_server():
            for part in shares:
                secure.take_shares(part)
            total = secure.total()
        bill.up += encode_answer(shares[0]).size
    if not np.array_equal(total, expected):
        raise FedMRError("The secure sum is not the plain sum.", code="secure.wrong-total")
    return SumCost(
        sites=len(names),
        dropped=dropped,
        numbers=numbers,
        bytes_up=bill.up,
        bytes_down=bill.down,
        site_seconds=bill.sites / len(names),
        server_seconds=bill.server,
        seconds=time.perf_counter() - started,
    )


class _Bill:
    """Adds up CPU time of all sites and of the server, and bytes of one site."""

    def __init__(self) -> None:
        self.up = self.down = 0
        self.sites = self.server = 0.0

    def note(self, question: Question, answer: Answer) -> None:
        """Count the answer to the step before, and the question of the next."""
        self.up += encode_answer(answer).size
        self.down += encode_question(question).size

    @contextmanager
    def at_sites(self) -> Iterator[None]:
        started = time.process_time()
        yield
        self.sites += time.process_time() - started

    @contextmanager
    def at_server(self) -> Iterator[None]:
        started = time.process_time()
        yield
        self.server += time.process_time() - started


def _hold(members: Mapping[str, Participant], staying: list[str], numbers: int) -> Vector:
    """Give every site a vector, and return the plain sum of those who stay."""
    generator, expected = np.random.default_rng(0), np.zeros(numbers, np.uint64)
    for name, member in members.items():
        vector = generator.integers(0, 2**40, numbers, dtype=np.uint64)
        member.hold(NAME, vector)
        if name in staying:
            expected += vector
    return expected
