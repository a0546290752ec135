"""An exchange: one question to the sites, and what the server makes of their answers."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import ClassVar

from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.evaluation.base import Statistics
from fedmr_med.exchange.closing import Total
from fedmr_med.models.reply_forms import form_of
from fedmr_med.schema import brief
from fedmr_med.server.shelf import MEMORY, Shelf
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.fields import Values, add
from fedmr_med.statistics.shared import shared_statistics
from fedmr_med.wire.codec import Message, decode_reply
from fedmr_med.wire.messages import SiteReply

LONGEST_REASON = 500
"""Characters kept of why an answer does not count: it may quote what a hostile site sent."""


class Exchange(ABC):
    """Takes the answers of the sites one by one, refuses the bad ones whole, and closes with a new global state.

    The result does not depend on who answered first. All methods may be called from any thread.

    Attributes:
        kind: of the messages, see :mod:`fedmr_med.wire.kinds`.
        state: the global state that the exchange starts from.

    Args:
        memory: bytes of replies that are held in memory; further ones wait in a file.
    """

    kind: ClassVar[str]

    def __init__(self, job: JobConfig, state: GlobalState, *, memory: int = MEMORY):
        self.job, self.state = job, state
        self._lock = threading.Lock()
        self._refused: dict[str, str] = {}
        self._started = time.monotonic()
        self._closed = False
        self._form = form_of(job, state.model, state.parameters, state.prototypes.means.shape[1])
        self._packages = shared_statistics(job.federation.statistics, self.kind)
        self._shared: dict[str, Mapping[str, Values]] = {}
        # Replies of thousands of clients would not fit in memory.
        self._replies: Shelf[SiteReply] = Shelf(memory)

    @property
    def sent(self) -> GlobalState:
        """The state whose model the sites receive: the one that is scored and leaves."""
        return self.state.leaving()

    def offer(self, site: str, message: Message) -> SiteReply:
        """Take a site's answer if all of it is in order.

        Raises:
            WireError: the answer does not count, and nothing of it stays; the message is the reason.
        """
        with self._lock:
            try:
                if self._closed:
                    raise WireError("the reply came after the round was closed", code="wire.late")
                if site in self._counted():
                    raise WireError("a second reply in the same round", code="wire.duplicate")
                reply = decode_reply(self.kind, message, site, self._form.layouts[self.kind])
                self._take(reply)
                parts = (statistic.part for statistic in self._packages)
                self._shared[site] = {part: reply.statistics[part] for part in parts if part in reply.statistics}
                return reply
            except WireError as e:
                reason = brief(str(e).removeprefix(f"{site}: "), LONGEST_REASON)
                self._refused.setdefault(site, reason)
                raise e.reworded(reason) from e
            except Exception as e:
                # Whatever a reply does to its readers, it must not stop the other sites.
                reason = f"the reply could not be read ({type(e).__name__})"
                self._refused.setdefault(site, reason)
                raise WireError(reason, code="wire.unreadable") from e

    def refuse(self, site: str, reason: str) -> None:
        """Put down that a site's answer does not count."""
        with self._lock:
            self._refused.setdefault(site, brief(reason, LONGEST_REASON))

    def status(self) -> tuple[list[str], dict[str, str]]:
        """Return whose answers count so far, and whose were refused, with the reason."""
        with self._lock:
            return sorted(self._counted()), dict(self._refused)

    @property
    def has_quorum(self) -> bool:
        """Whether enough usable answers are there."""
        with self._lock:
            return len(self._counted()) >= self.job.federation.min_sites

    def _shared_results(self, sites: Collection[str], total: Total | None) -> Statistics:
        """Return what statistics of other packages say of the exchange, by name; nothing of one that nobody shares.

        Args:
            sites: those that count, where each site's values are known.
            total: what a secure sum gave instead.
        """
        results: Statistics = {}
        for statistic in self._packages:
            if total is not None:
                parts = [total.values[statistic.part]] if total.values is not None else []
            else:
                shared = [self._shared[site] for site in sorted(sites)]
                parts = [values[statistic.part] for values in shared if statistic.part in values]
            values = add(*parts) if parts else {}
            if any(array.any() for array in values.values()):
                results[statistic.name] = statistic.result(values)
        return results

    @abstractmethod
    def close(self, total: Total | None = None) -> GlobalState:
        """Add up what counts and return the new global state; answers that come later are refused.

        Args:
            total: the statistics of all sites together, where the job has them summed securely.

        Raises:
            FedMRError: the exchange failed, and the job with it.
        """

    def _take(self, reply: SiteReply) -> None:
        """Hold an answer; an exchange that has more to look at does so first, and raises WireError."""
        self._replies.add(reply.site, reply)

    def _counted(self) -> Collection[str]:
        """Return the sites whose answers count so far."""
        return self._replies
