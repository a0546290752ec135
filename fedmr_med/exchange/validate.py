"""Scoring a model: the sites' confusion matrices and score histograms, pooled."""

from collections.abc import Collection
from dataclasses import replace
from functools import reduce
from operator import add

from fedmr_med.config import PAIR, JobConfig
from fedmr_med.evaluation.metrics import Scores, pooled
from fedmr_med.evaluation.pairs import PairRecord, Pairs
from fedmr_med.evaluation.records import HeadRecord
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import Total
from fedmr_med.server.checks import Registered
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.base import Origin
from fedmr_med.statistics.pairs import PAIRS
from fedmr_med.statistics.scores import SCORES
from fedmr_med.statistics.subgroups import SUBGROUPS, Levels
from fedmr_med.wire.kinds import VALIDATE
from fedmr_med.wire.messages import SiteReply


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
        self._scores: dict[str, Scores | None] = {}
        self._levels: dict[str, Levels] = {}
        self._pairs: dict[str, Pairs | None] = {}

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
                evaluation = Evaluation.of(self.state.round, self._scores, validates=validates)
            else:
                known = Origin(len(total.record.sites))
                scores, record = total.read(lambda values: SCORES.read(values[SCORES.name], known))
                evaluation = Evaluation.of_total(self.state.round, scores, record.sites, validates=validates)
            results = self._shared_results(self._scores, total)
            whole, found = self._by_level(total)
            compared = self._compared(total) if self.job.model.name == PAIR else None
        if whole is not None and self.job.task.levels:
            evaluation = evaluation.by_level(self.job.task.levels, found, whole)
        evaluation = evaluation.model_copy(update={"statistics": results, "against": compared})
        history = self.state.history
        if self._head is None:
            return replace(self.state, history=history.with_evaluation(evaluation))
        head = self._head.model_copy(update={"evaluation": evaluation})
        return replace(self.state, history=history.with_head(head))

    def _by_level(self, total: Total | None) -> tuple[Scores | None, list[tuple[Scores | None, tuple[str, ...]]]]:
        """Return the scores of all images, and those of each level with the sites that share them."""
        count = len(self.job.task.levels)
        if total is None:
            whole = pooled({site: scores for site, scores in self._scores.items() if scores is not None})[0]
            parts = [{s: found[level] for s, found in self._levels.items()} for level in range(count)]
            return whole, [pooled({s: scores for s, scores in part.items() if scores is not None}) for part in parts]
        known = Origin(len(total.record.sites))
        whole, _ = total.read(lambda values: SCORES.read(values[SCORES.name], known))
        levels, _ = total.read(lambda values: SUBGROUPS.read(values[SUBGROUPS.name], known))
        return whole, [(scores, ()) for scores in levels or [None] * count]

    def _compared(self, total: Total | None) -> PairRecord | None:
        """Return whether the first of two models is better."""
        if total is not None:
            known = Origin(len(total.record.sites))
            pairs, record = total.read(lambda values: PAIRS.read(values[PAIRS.name], known))
            return None if pairs is None else PairRecord.of(pairs, record.sites)
        found = {site: pairs for site, pairs in sorted(self._pairs.items()) if pairs is not None}
        silent = tuple(sorted(self._pairs.keys() - found.keys()))
        return PairRecord.of(reduce(add, found.values()), tuple(found), silent) if found else None

    def _counted(self) -> Collection[str]:
        return self._scores

    def _take(self, reply: SiteReply) -> None:
        self._registered.check_scores(reply.site, reply.scores)
        self._levels[reply.site] = reply.subgroups or [None] * len(self.job.task.levels)
        self._pairs[reply.site] = reply.pairs
        self._scores[reply.site] = reply.scores
