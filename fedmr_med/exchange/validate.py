"""Scoring a model: the sites' confusion matrices and score histograms, pooled."""

from collections.abc import Collection
from dataclasses import replace

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import HeadRecord
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import Total
from fedmr_med.server.checks import Registered
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.base import Origin
from fedmr_med.statistics.scores import SCORES
from fedmr_med.wire.codec import Message, decode_validation
from fedmr_med.wire.kinds import VALIDATE


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
        evaluation = evaluation.model_copy(update={"statistics": results})
        history = self.state.history
        if self._head is None:
            return replace(self.state, history=history.with_evaluation(evaluation))
        head = self._head.model_copy(update={"evaluation": evaluation})
        return replace(self.state, history=history.with_head(head))

    def _counted(self) -> Collection[str]:
        return self._scores

    def _take(self, site: str, message: Message) -> None:
        scores = decode_validation(message, self.job.task.num_classes)
        self._registered.check_scores(site, scores)
        self._scores[site] = scores
