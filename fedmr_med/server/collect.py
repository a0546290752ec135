"""Collecting the replies of a round: refuse the bad ones whole, hold the good ones until the round closes."""

import threading
import time

from fedmr_med import faults
from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.server.aggregation import PrototypeAggregator, SecureStatistics
from fedmr_med.server.robust import needs_all_replies, offences, outliers, restrained
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.codec import Message, decode_reply
from fedmr_med.wire.messages import SiteReply


class ReplyCollector:
    """The replies of one round, from the sending of the task to the new global state.

    Replies are added up in the order of the site names when the round closes, so the result does not depend on
    who answered first. All methods may be called from any thread.

    Args:
        job: the job's settings.
        state: the global state the round starts from.
        num_sites: sites of the federation, whether or not all of them are asked.
        in_order: whether the replies come in the order of the site names. Then each is added at once and none is
            held, so that memory does not grow with their number, unless the job compares them with each other
            (:mod:`fedmr_med.server.robust`).
    """

    def __init__(self, job: JobConfig, state: GlobalState, *, num_sites: int, in_order: bool = False):
        self.job = job
        self.state = state
        self._num_sites = num_sites
        self._in_order = in_order and not needs_all_replies(job.federation)
        self._offences = offences(state.history)
        self._aggregator = PrototypeAggregator(job, state)
        self._lock = threading.Lock()
        self._held: dict[str, SiteReply] = {}
        self._refused: dict[str, str] = {}
        self._started = time.monotonic()
        self._closed = False

    def offer(self, site: str, message: Message) -> SiteReply:
        """Take a site's reply if all of it is in order.

        Raises:
            WireError: the reply does not count, and nothing of it stays; the message is the reason.
        """
        with self._lock:
            try:
                reply = self._checked(site, message)
                self._held[site] = reply
                if self._in_order:
                    self._add_held()
            except WireError as e:
                reason = str(e).removeprefix(f"{site}: ")
                self._refused.setdefault(site, reason)
                raise e.reworded(reason) from e
            except Exception as e:
                # Whatever a reply does to its readers, it must not stop the other sites.
                self._held.pop(site, None)
                reason = f"the reply could not be read ({type(e).__name__})"
                self._refused.setdefault(site, reason)
                raise WireError(reason, code="wire.unreadable") from e
        return reply

    def refuse(self, site: str, reason: str) -> None:
        """Put down that a site's reply does not count."""
        with self._lock:
            self._refused.setdefault(site, reason)

    def standing(self) -> tuple[list[str], dict[str, str]]:
        """Return whose replies count so far, and whose were refused, with the reason."""
        with self._lock:
            return sorted(self._counted()), dict(self._refused)

    @property
    def has_quorum(self) -> bool:
        """Whether enough usable replies are there."""
        with self._lock:
            return len(self._counted()) >= self.job.federation.min_sites

    def close(self, secure: SecureStatistics | None = None) -> GlobalState:
        """Add up what counts and return the new global state; replies that come later are refused.

        Args:
            secure: the statistics of all sites together, where the job has them summed securely.

        Raises:
            FedMRError: too few replies were usable; the message says which were refused, and why.
        """
        with self._lock:
            self._closed = True
            usable, needed = len(self._counted()), self.job.federation.min_sites
            number = self.state.round + 1
            if usable < needed:
                reasons = "; ".join(f"{site}: {reason}" for site, reason in sorted(self._refused.items()))
                raise FedMRError(
                    f"Round {number} has {usable} usable replies, federation.min_sites asks for {needed}. "
                    f"Refused: {reasons or 'none'}.",
                    code="round.too-few-replies",
                    key="federation.min_sites",
                )
            self._leave_outliers_out()
            self._add_held()
            if secure is not None:
                self._aggregator.add_secure(secure)
            faults.reach(f"aggregate-{number}")
            return self._aggregator.finish(self._num_sites, self._refused, time.monotonic() - self._started)

    def _counted(self) -> set[str]:
        return set(self._held) | set(self._aggregator.sites)

    def _checked(self, site: str, message: Message) -> SiteReply:
        if self._closed:
            raise WireError("the reply came after the round was closed", code="wire.late")
        classes, size = self.state.prototypes.means.shape
        reply = decode_reply(message, site, num_classes=classes, feature_size=size)
        if site in self._held:
            raise WireError("a second reply in the same round", code="wire.duplicate")
        if self._in_order and any(site < earlier for earlier in self._aggregator.sites):
            raise WireError("the reply came out of the order of the site names", code="wire.order")
        self._aggregator.check(reply)
        patience = self.job.federation.quarantine_after
        if patience is not None and self._offences.get(site, 0) >= patience:
            raise WireError(f"in quarantine: refused in the last {self._offences[site]} rounds", code="wire.quarantine")
        return reply

    def _leave_outliers_out(self) -> None:
        """Take back replies that differ too much from the others; they still count for the quorum."""
        for site, reason in outliers(list(self._held.values()), self.state, self.job.federation).items():
            del self._held[site]
            self._refused.setdefault(site, reason)

    def _add_held(self) -> None:
        held = [self._held[site] for site in sorted(self._held)]
        self._aggregator.add(*restrained(held, self.state, self.job.federation))
        self._held = {}
