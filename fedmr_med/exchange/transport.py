"""How messages travel between the server and the sites. FLARE, Flower and the in-process runner each have one."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from fedmr_med.config import FederationConfig
from fedmr_med.errors import WireError
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import SECURE

STEP_SECONDS = 10
"""How long a step of a secure sum may take, for each site and a dozen more: simulations start processes for it."""

SERVER = "server"
"""Who answers ``validate`` where the server has a test set of its own."""

Answer = Message | WireError
"""What came back from a site: a message, or why there is none of use."""


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The job was ended while sites were asked. What was reached is on disk."""


class Transport(Protocol):
    """Carries questions to sites and answers back. It reads neither of them.

    Attributes:
        in_order: whether answers come in the order in which the sites were named.
    """

    in_order: bool

    def sites(self, kind: str) -> list[str]:
        """Return the names of those who can answer a kind of message, in order."""

    def ask(
        self, kind: str, message: Message, sites: Sequence[str], enough: Callable[[], bool]
    ) -> Iterator[tuple[str, Answer]]:
        """Send a message and yield the answers by site.

        Args:
            kind: one of :mod:`fedmr_med.wire.kinds`.
            message: what every one of ``sites`` receives.
            enough: whether the answers so far suffice; a transport may then give up on sites that are late.

        Raises:
            Stopped: the job was ended.
            FedMRError: nobody can be asked.
        """


class Grace:
    """The time that late sites still have once there are enough answers: so many seconds."""

    def __init__(self, enough: Callable[[], bool], seconds: float):
        self._enough, self._seconds = enough, seconds
        self._since: float | None = None

    def over(self) -> bool:
        """Whether nobody is waited for any more; to be asked again and again."""
        if self._since is None and self._enough():
            self._since = time.monotonic()
        return self._since is not None and time.monotonic() - self._since >= self._seconds


def seconds_for(kind: str, federation: FederationConfig, sites: int) -> float:
    """Return how many seconds that many sites have to answer a kind of message; 0 is no limit."""
    return STEP_SECONDS * (12 + sites) if kind == SECURE else federation.timeout_seconds
