"""The scores of one model: of each site, and of all of them together."""

from collections.abc import Mapping

from fedmr_med.evaluation.base import MetricName, Statistics
from fedmr_med.evaluation.figures import Figures, figures
from fedmr_med.evaluation.metrics import Scores, pooled, recalls
from fedmr_med.schema import Name, Strict


class Score(Strict):
    """The scalars of :class:`fedmr_med.evaluation.metrics.Scores`.

    Attributes:
        accuracy, balanced_accuracy, samples: over the classes that are not held back.
        withheld: the labels of the classes that a site holds back.
        recall: of each class, in the order of the labels; None for a class without test images or held back. Empty
            where only the scalars are shared.
    """

    accuracy: float
    balanced_accuracy: float
    samples: int
    withheld: tuple[int, ...] = ()
    recall: tuple[float | None, ...] = ()

    @classmethod
    def of(cls, scores: Scores) -> "Score":
        """Drop the confusion matrix and the histograms."""
        return cls(
            recall=() if scores.confusion is None else recalls(scores.confusion),
            accuracy=scores.accuracy,
            balanced_accuracy=scores.balanced_accuracy,
            samples=scores.samples,
            withheld=scores.withheld,
        )


class Evaluation(Strict):
    """The global model after ``round`` rounds on the test sets of the sites that share their scores.

    Attributes:
        round: completed rounds; 0 is the initial model.
        sites: score by site.
        pooled: over the sites in ``pooled_sites``, which share their confusion matrix.
        held_back: the sites that answered and let no score out.
        statistics: see :data:`Statistics`.
        metrics: every metric over those sites, for all classes together.
        figures, pooled_figures: the clinical figures by site and pooled. To keep files small they stay with the best
            and the last evaluation of a chain only.
    """

    round: int
    sites: dict[Name, Score]
    pooled: Score | None
    pooled_sites: tuple[Name, ...]
    held_back: tuple[Name, ...] = ()
    statistics: Statistics = {}
    metrics: dict[MetricName, float] = {}
    figures: dict[Name, Figures] = {}
    pooled_figures: Figures | None = None

    @classmethod
    def of(cls, round_number: int, answers: Mapping[str, Scores | None]) -> "Evaluation":
        """Sum up the scores of a model.

        Args:
            round_number: completed rounds of the model.
            answers: scores by site; None of a site that holds them back.
        """
        known = {site: scores for site, scores in sorted(answers.items()) if scores is not None}
        pool, names = pooled(known)
        together = None if pool is None else figures(pool)
        thresholds = None if together is None else together.thresholds
        by_site = {site: figures(scores, thresholds) for site, scores in known.items()}
        return cls(
            round=round_number,
            sites={site: Score.of(scores) for site, scores in known.items()},
            pooled=Score.of(pool) if pool else None,
            pooled_sites=names,
            held_back=tuple(sorted(answers.keys() - known.keys())),
            metrics=_values(together),
            figures={site: found for site, found in by_site.items() if found is not None},
            pooled_figures=together,
        )

    @classmethod
    def of_total(cls, round_number: int, total: Scores | None, sites: tuple[str, ...]) -> "Evaluation":
        """Sum up scores of which only the total over ``sites`` is known; None where none of them shares any."""
        together = None if total is None else figures(total)
        return cls(
            round=round_number,
            sites={},
            pooled=None if total is None else Score.of(total),
            pooled_sites=() if total is None else sites,
            metrics=_values(together),
            pooled_figures=together,
        )

    def without_figures(self) -> "Evaluation":
        """Return the evaluation with its scalars alone."""
        return self.model_copy(update={"figures": {}, "pooled_figures": None})


def _values(found: Figures | None) -> dict[str, float]:
    return {name: estimate.value for name, estimate in found.metrics.items()} if found else {}
