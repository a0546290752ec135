"""A training round: refuse bad replies whole, hold the good ones until the round closes, then make the new state."""

import time
from collections.abc import Collection, Mapping

from fedmr_med import faults
from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import Total, origin
from fedmr_med.prototypes import ClassSums
from fedmr_med.server.aggregation import PrototypeAggregator
from fedmr_med.server.checks import ReplyCheck
from fedmr_med.server.robust import Comparison, needs_all_replies, offences, restrained, weights
from fedmr_med.server.shelf import MEMORY, Shelf
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.fields import Values
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.statistics.scores import SCORES
from fedmr_med.wire.forms import MODELS
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import SiteReply


class TrainExchange(Exchange):
    """The replies of one round, from the sending of the task to the new global state.

    Replies are added up in the order of the site names when the round closes, so the result does not depend on
    who answered first.

    Args:
        num_sites: sites of the federation, whether or not all of them are asked.
        in_order: whether the replies come in the order of the site names. Then each is added at once and none is
            held, so that memory does not grow with their number, unless the job compares them with each other
            (:mod:`fedmr_med.server.robust`).
    """

    kind = TRAIN

    def __init__(
        self, job: JobConfig, state: GlobalState, *, num_sites: int, in_order: bool = False, memory: int = MEMORY
    ):
        super().__init__(job, state, memory=memory)
        self._num_sites = num_sites
        self._in_order = in_order and not needs_all_replies(job.federation)
        self._offences = offences(state.history)
        self._check, self._aggregator = ReplyCheck(job, state, self._form), PrototypeAggregator(job, state)
        self._comparison = Comparison(state, job.federation)

    @property
    def sent(self) -> GlobalState:
        """The state whose model the sites train on; the one that they score goes along where it is another."""
        return self.state

    def close(self, total: Total | None = None) -> GlobalState:
        """Add up what counts and return the global state after the round.

        Raises:
            FedMRError: too few replies were usable; the message says which were refused, and why. Or the models should
                be in the total, and are not.
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
            if total is not None:
                self._add_total(total)
            faults.reach(f"aggregate-{number}")
            seconds = time.monotonic() - self._started
            results = self._shared_results(self._aggregator.sites, total)
            return self._aggregator.finish(self._num_sites, self._refused, seconds, results)

    def _add_total(self, total: Total) -> None:
        """Read the sums of all sites, and add them."""
        known = origin(self.job, len(total.record.sites))

        def read(values: Mapping[str, Values]) -> tuple[ClassSums | None, Scores | None, Values | None]:
            sums = PROTOTYPES.read(values[PROTOTYPES.name], known)
            return sums, SCORES.read(values[SCORES.name], known), values.get(MODELS)

        parts, record = total.read(read)
        self._aggregator.add_total(record, *(parts or (None, None, None)))

    def _counted(self) -> Collection[str]:
        return set(self._replies) | set(self._aggregator.sites)

    def _take(self, reply: SiteReply) -> None:
        site = reply.site
        if self._in_order and any(site < earlier for earlier in self._aggregator.sites):
            raise WireError("the reply came out of the order of the site names", code="wire.order")
        self._check.check(reply)
        patience = self.job.federation.quarantine_after
        if patience is not None and self._offences.get(site, 0) >= patience:
            raise WireError(f"in quarantine: refused in the last {self._offences[site]} rounds", code="wire.quarantine")
        if self._in_order:
            self._aggregator.add(reply)
        else:
            self._comparison.note(reply)
            super()._take(reply)

    def _leave_outliers_out(self) -> None:
        """Take back replies that differ too much from the others; they still count for the quorum."""
        for site, reason in self._comparison.outliers(self._replies).items():
            self._replies.remove(site)
            self._refused.setdefault(site, reason)

    def _add_held(self) -> None:
        samples = {site: reply.samples for site, reply in self._replies.items()}
        self._aggregator.weights = weights(samples, self.job.federation)
        for reply in restrained(self._replies.values(), self.state, self.job.federation):
            self._aggregator.add(reply)
        self._replies = Shelf(0)
