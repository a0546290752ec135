"""What a secure sum costs: bytes and seconds of one site and of the server, measured in this process."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedmr_med.errors import ConfigError
from fedmr_med.schema import Strict
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.secure.messages import FEWEST, Release, Roster, threshold
from fedmr_med.secure.participant import Participant
from fedmr_med.secure.summing import SecureSum
from fedmr_med.wire.secure import Question, encode_answer, encode_question


class SumCost(Strict):
    """The cost of one sum.

    Attributes:
        sites, dropped: sites with keys, and how many of them were lost before they masked.
        numbers: length of the vectors.
        bytes_up, bytes_down: of one site, all steps together; the vector itself is 8 bytes a number of ``bytes_up``.
        site_seconds, server_seconds: work of one site, and of the server, without the network.
    """

    sites: int
    dropped: int
    numbers: int
    bytes_up: int
    bytes_down: int
    site_seconds: float
    server_seconds: float


def sum_cost(sites: int, dropped: int, numbers: int) -> SumCost:
    """Run one sum and measure it.

    Raises:
        ConfigError: so few sites cannot lose so many.
    """
    if sites < FEWEST or sites - dropped < threshold(sites):
        raise ConfigError(f"A sum of {sites} sites cannot be opened without {dropped} of them.")
    names = [f"site-{number:04}" for number in range(sites)]
    with TemporaryDirectory() as folder:
        members = {name: Participant(name, Path(folder) / name, UNSIGNED) for name in names}
        expected, generator = np.zeros(numbers, np.uint64), np.random.default_rng(0)
        for position, member in enumerate(members.values()):
            vector = generator.integers(0, 2**40, numbers, dtype=np.uint64)
            member.hold("cost", vector)
            if position >= dropped:
                expected += vector
        up = down = 0
        clock, at_sites = time.perf_counter(), 0.0
        began = time.perf_counter()
        keys = [member.keys("cost", "cost") for member in members.values()]
        at_sites += time.perf_counter() - began
        release, roster = Release("cost", "cost", "cost"), Roster.of(keys)
        secure = SecureSum(release, roster, numbers)
        question = Question("offer", release, "0" * 16, roster)
        up += encode_answer(keys[0]).size
        down += encode_question(question).size
        began = time.perf_counter()
        offers = [member.offer(release, roster) for member in members.values()]
        at_sites += time.perf_counter() - began
        for offer in offers:
            secure.take_offer(offer)
        up += encode_answer(offers[0]).size
        down += encode_question(Question("mask", release, "0" * 16, roster, tuple(offers))).size
        began = time.perf_counter()
        masked = [members[name].mask(release, roster, offers) for name in names[dropped:]]
        at_sites += time.perf_counter() - began
        for answer in masked:
            secure.take_masked(answer)
        survivors = secure.survivors()
        up += encode_answer(masked[0]).size
        down += encode_question(Question("unmask", release, "0" * 16, roster, (), survivors)).size
        began = time.perf_counter()
        shares = [members[name].unmask(release, roster, survivors) for name in survivors]
        at_sites += time.perf_counter() - began
        for part in shares:
            secure.take_shares(part)
        up += encode_answer(shares[0]).size
        total = secure.total()
        elapsed = time.perf_counter() - clock
    assert np.array_equal(total, expected), "a secure sum is the plain sum"
    return SumCost(
        sites=sites,
        dropped=dropped,
        numbers=numbers,
        bytes_up=up,
        bytes_down=down,
        site_seconds=at_sites / sites,
        server_seconds=elapsed - at_sites,
    )
