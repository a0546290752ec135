"""Scoring a model: the sites' confusion matrices and score histograms, pooled."""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TypeVar

from fedmr_med.config import PAIR, JobConfig
from fedmr_med.evaluation.metrics import Scores, pooled
from fedmr_med.evaluation.pairs import PairRecord
from fedmr_med.evaluation.records import HeadRecord
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import Total
from fedmr_med.server.checks import Registered
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.pairs import PAIRS
from fedmr_med.statistics.scores import SCORES
from fedmr_med.statistics.subgroups import SUBGROUPS
from fedmr_med.wire.kinds import VALIDATE
from fedmr_med.wire.messages import SiteReply

T = TypeVar("T")


class ValidateExchange(Exchange):
    """The scores of the model that leaves, or of the same model with its closed-form head.

    Args:
        head: the closed-form head that the model is scored with; None scores its own classifier.
    """

    kind = VALIDATE

    def __init__(self, job: JobConfig, state: GlobalState, *, head: HeadRecord | None = None):
        super().__init__(job, state)
        self._head = head
        self._registered = Registered.of(state.history, job)

    @property
    def sent(self) -> GlobalState:
        """The state whose model the sites score."""
        return self.state.leaving() if self._head is None else self.state.with_head()

    def close(self, total: Total | None = None) -> GlobalState:
        """Return the state with the scores of its model put down."""
        with self._lock:
            self._closed = True
            validates = self.job.train.validation > 0
            if total is None:
                scores = {site: reply.scores for site, reply in self._replies.items()}
                evaluation = Evaluation.of(self.state.round, scores, validates=validates)
                whole = pooled(_known(scores))[0]
            else:
                whole, record = total.of(SCORES)
                evaluation = Evaluation.of_total(self.state.round, whole, record.sites, validates=validates)
            results = self._shared_results(self._replies, total)
            found = self._by_level(total)
            compared = self._compared(total) if self.job.model.name == PAIR else None
        if whole is not None and self.job.task.levels:
            evaluation = evaluation.by_level(self.job.task.levels, found, whole)
        evaluation = evaluation.model_copy(update={"statistics": results, "against": compared})
        history = self.state.history
        if self._head is None:
            return replace(self.state, history=history.with_evaluation(evaluation))
        head = self._head.model_copy(update={"evaluation": evaluation})
        return replace(self.state, history=history.with_head(head))

    def _by_level(self, total: Total | None) -> list[tuple[Scores | None, tuple[str, ...]]]:
        """Return the scores of each level, with the sites that share them."""
        count = len(self.job.task.levels)
        if total is not None:
            return [(scores, ()) for scores in total.of(SUBGROUPS)[0] or [None] * count]
        levels = {site: reply.of(SUBGROUPS) or [None] * count for site, reply in self._replies.items()}
        return [pooled(_known({site: found[level] for site, found in levels.items()})) for level in range(count)]

    def _compared(self, total: Total | None) -> PairRecord | None:
        """Return whether the first of two models is better."""
        if total is not None:
            pairs, record = total.of(PAIRS)
            return None if pairs is None else PairRecord.of(pairs, record.sites)
        found = _known({site: reply.of(PAIRS) for site, reply in self._replies.items()})
        silent = tuple(sorted(self._replies.keys() - found.keys()))
        return PairRecord.of(reduce(add, found.values()), tuple(found), silent) if found else None

    def _take(self, reply: SiteReply) -> None:
        self._registered.check_scores(reply.site, reply.scores)
        super()._take(reply)


def _known(found: Mapping[str, T | None]) -> dict[str, T]:
    return {site: content for site, content in found.items() if content is not None}
