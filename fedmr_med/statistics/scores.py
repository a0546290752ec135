"""Scores as fields: the confusion matrix and the score histograms of test images."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedmr_med.errors import WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.clinical import BINS, MAX_NLL, TEMPERATURES, IntArray, ScoreHistograms
from fedmr_med.evaluation.clustering import BY_CLASS, WHOLE, Clustering, most_residuals
from fedmr_med.evaluation.metrics import Scores, scores
from fedmr_med.statistics.base import ONE_SITE, Origin, Sizes, Statistic, counts
from fedmr_med.statistics.fields import BITS, Field, Values

CONFUSION = "confusion"
CLUSTERING = ("together", "alone")
VALIDATION = "validation_"
"""Before the names of the fields of validation images."""
_SLACK = 1e-3  # of sums of real numbers, which a secure sum rounds


class ScoreStatistic(Statistic[Scores]):
    """Confusion matrix and histograms; scalars alone do not add up, so scores without a matrix put nothing in."""

    name = "scores"

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return the (C, C) matrix, the six arrays of the histograms, and the two of the patients.

        Those of validation images come after them, where a job has such.
        """
        classes = sizes.num_classes
        if sizes.validation:
            own = self.fields(replace(sizes, validation=False))
            return {**own, **{f"{VALIDATION}{name}": field for name, field in own.items()}}
        return {
            CONFUSION: counts(classes, classes),
            "positives": counts(classes, BINS),
            "negatives": counts(classes, BINS),
            "right": counts(BINS),
            "wrong": counts(BINS),
            "nll": Field((len(TEMPERATURES),), BITS, least=0),
            "brier": Field((2,), BITS, least=0),
            **{name: Field((_residuals(classes),), BITS, least=0) for name in CLUSTERING},
        }

    def values(self, content: Scores) -> Values:
        """Return matrix and histograms, which are zero where there are none."""
        if content.confusion is None:
            raise ValueError("scores without a confusion matrix do not add up")
        classes = len(content.confusion)
        histograms, clustering = content.histograms or _no_histograms(classes), content.clustering
        unknown = np.zeros(_residuals(classes))
        patients = dict.fromkeys(CLUSTERING, unknown) if clustering is None else vars(clustering)
        chosen_on = {} if content.validation is None else self.values(content.validation)
        own = {CONFUSION: content.confusion, **vars(histograms), **patients}
        return {**own, **{f"{VALIDATION}{name}": array for name, array in chosen_on.items()}}

    def read(self, values: Values, origin: Origin = ONE_SITE) -> Scores | None:
        """Return the scores of all images together; nothing of them says which classes a site holds back."""
        chosen_on = {name.removeprefix(VALIDATION): a for name, a in values.items() if name.startswith(VALIDATION)}
        values = {name: array for name, array in values.items() if not name.startswith(VALIDATION)}
        confusion: IntArray = values[CONFUSION]
        if (confusion < 0).any() or confusion.sum() > origin.sites * MAX_IMAGES:
            raise WireError("the confusion matrix has counts that no sites have", code="wire.counts", key=self.name)
        others = {name: array for name, array in values.items() if name not in (CONFUSION, *CLUSTERING)}
        histograms, clustering = ScoreHistograms(**others), Clustering(*(values[name] for name in CLUSTERING))
        counted = any(array.any() for array in vars(histograms).values())
        if not confusion.any() and not counted:
            return None
        if counted:
            self._check(histograms, confusion, origin.sites)
        most = most_residuals(len(confusion), int(confusion.sum()))
        if not all((array <= limit).all() for array, limit in zip(vars(clustering).values(), most, strict=True)):
            raise WireError("residuals of patients are larger than images have", code="wire.range", key="clustering")
        return replace(
            scores(confusion),
            histograms=histograms if counted else None,
            clustering=clustering if clustering.alone.any() else None,
            validation=self.read(chosen_on, origin) if chosen_on else None,
        )

    def _check(self, histograms: ScoreHistograms, confusion: IntArray, sites: int) -> None:
        """Compare histograms with the matrix of the same images; some of several sites may have put in none."""
        images, positives, samples = confusion.sum(1), histograms.positives.sum(1), histograms.samples

        def fits(values: IntArray, limits: IntArray) -> bool:
            return bool((values == limits).all() if sites == 1 else (values <= limits).all())

        integers = (histograms.positives, histograms.negatives, histograms.right, histograms.wrong)
        if any((array < 0).any() for array in integers) or not fits(positives, images):
            self._refuse("count other images than the confusion matrix")
        if not np.array_equal(histograms.negatives.sum(1), samples - positives):
            self._refuse("count other negatives than positives")
        right = int(np.trace(confusion))
        answers = np.array([histograms.right.sum(), histograms.wrong.sum()])
        # A site sends no answers at all where one of the two kinds is too rare to leave.
        if answers.any() and not fits(answers, np.array([right, confusion.sum() - right])):
            self._refuse("count other answers than the confusion matrix")
        limits = {"nll": np.array([samples * MAX_NLL]), "brier": samples * np.array([2.0, 4.0])}
        for name, limit in limits.items():
            values = getattr(histograms, name)
            # A comparison with NaN is false, so this refuses what is not finite as well.
            if not ((values >= 0) & (values <= limit + _SLACK)).all():
                self._refuse(f"have a {name} out of range", code="wire.range")

    def _refuse(self, reason: str, code: str = "wire.counts") -> None:
        raise WireError(f"the histograms {reason}", code=code, key="histograms")


SCORES = ScoreStatistic()


def _residuals(classes: int) -> int:
    """Return the number of figures that patients widen the intervals of."""
    return len(WHOLE) + len(BY_CLASS) * classes


def _no_histograms(classes: int) -> ScoreHistograms:
    rows, row = np.zeros((classes, BINS), np.int64), np.zeros(BINS, np.int64)
    return ScoreHistograms(rows, rows, row, row, np.zeros(len(TEMPERATURES)), np.zeros(2))
