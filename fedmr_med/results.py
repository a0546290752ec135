"""What a run leaves behind for people and programs: the one results schema of the toolkit.

The history of a chain is part of its checkpoint, so that a summary covers a run and all its resumptions.
"""

from typing import Any

from fedmr_med.metrics import Scores
from fedmr_med.schema import Strict


class Score(Strict):
    """The scalars of :class:`fedmr_med.metrics.Scores`."""

    accuracy: float
    balanced_accuracy: float
    samples: int

    @classmethod
    def of(cls, scores: Scores) -> "Score":
        """Drop the confusion matrix."""
        return cls(accuracy=scores.accuracy, balanced_accuracy=scores.balanced_accuracy, samples=scores.samples)


class Evaluation(Strict):
    """The global model after ``round`` rounds on the test sets of the sites that share their scores.

    Attributes:
        round: completed rounds; 0 is the initial model.
        sites: score by site.
        pooled: over the sites in ``pooled_sites``, which share their confusion matrix.
    """

    round: int
    sites: dict[str, Score]
    pooled: Score | None
    pooled_sites: tuple[str, ...]


class SiteRound(Strict):
    """One site's part in a round.

    Attributes:
        samples: its training images.
        shared_classes: the classes whose prototype it shared.
        bytes_up, bytes_down: size of the arrays it sent and received.
        seconds, terms, images_total, images_skipped: local time, mean terms of the local objective, and images
            found and left out; absent where the site shares no metrics.
    """

    samples: int
    shared_classes: tuple[str, ...]
    bytes_up: int
    bytes_down: int
    seconds: float | None = None
    terms: dict[str, float] = {}
    images_total: int | None = None
    images_skipped: int | None = None


class RoundRecord(Strict):
    """One round.

    Attributes:
        round: number of the round, from 1.
        sites: the sites whose reply counted.
        refused: the sites whose reply did not, with the reason.
        seconds: wall time from sending the model to the new one.
    """

    round: int
    sites: dict[str, SiteRound]
    refused: dict[str, str] = {}
    seconds: float = 0.0


class Best(Strict):
    """The best global model so far: completed rounds and pooled balanced accuracy."""

    round: int
    balanced_accuracy: float


class History(Strict):
    """All rounds and evaluations of a chain, and the best model."""

    rounds: tuple[RoundRecord, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    best: Best | None = None

    def with_evaluation(self, evaluation: Evaluation) -> "History":
        """Add an evaluation; it becomes the best if its pooled balanced accuracy is higher than all before."""
        best = self.best
        if evaluation.pooled and (best is None or evaluation.pooled.balanced_accuracy > best.balanced_accuracy):
            best = Best(round=evaluation.round, balanced_accuracy=evaluation.pooled.balanced_accuracy)
        others = tuple(e for e in self.evaluations if e.round != evaluation.round)
        return History(rounds=self.rounds, evaluations=(*others, evaluation), best=best)

    def with_round(self, record: RoundRecord) -> "History":
        """Add a round."""
        return History(rounds=(*self.rounds, record), evaluations=self.evaluations, best=self.best)


def run_result(history: History, **about: Any) -> dict[str, Any]:
    """Return one entry of ``results.json``: what the run was (``about``) and its scores by round."""
    scores = {e.round: e.pooled for e in history.evaluations if e.pooled}
    rounds = [
        {
            "round": record.round,
            "accuracy": scores[record.round].accuracy if record.round in scores else None,
            "balanced_accuracy": scores[record.round].balanced_accuracy if record.round in scores else None,
            "seconds": record.seconds,
            "bytes_up": sum(site.bytes_up for site in record.sites.values()),
            "bytes_down": sum(site.bytes_down for site in record.sites.values()),
        }
        for record in history.rounds
    ]
    accuracies = [score.accuracy for score in scores.values()]
    return about | {
        "rounds": rounds,
        "best_accuracy": max(accuracies) if accuracies else None,
        "best": history.best.model_dump() if history.best else None,
        "history": history.model_dump(mode="json"),
    }
