"""Scores as fields: the confusion matrix and the score histograms of test images, and what of them may leave."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.arrays import Arrays
from fedmr_med.errors import WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.clinical import BINS, MAX_NLL, TEMPERATURES, IntArray, ScoreHistograms
from fedmr_med.evaluation.clustering import BY_CLASS, WHOLE, Clustering, most_residuals
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.evaluation.metrics import scores as score
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.statistics.base import ONE_SITE, Leaving, Origin, ReadStatistic, Sizes, counts
from fedmr_med.statistics.fields import BITS, Field, Layout, Values, whole_number

CONFUSION = "confusion"
CLUSTERING = ("together", "alone")
VALIDATION = "validation_"
"""Before the names of the fields of validation images."""
WITHHELD = "withheld"
_SCALARS = ("accuracy", "mean_recall", "samples")
_DIGITS = 3  # of the scalars that leave
_SLACK = 1e-3  # of sums of real numbers, which a secure sum rounds


class ScoreStatistic(ReadStatistic[Scores]):
    """Confusion matrix and histograms; scalars alone do not add up, so scores without a matrix put nothing in.

    Beside the arrays a message says which classes are held back, or the scalars where they are alone.
    """

    name = "scores"
    tells = True

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
            return {}
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
            score(confusion),
            histograms=histograms if counted else None,
            clustering=clustering if clustering.alone.any() else None,
            validation=self.read(chosen_on, origin) if chosen_on else None,
        )

    def told(self, content: Scores | None) -> dict[str, Any] | None:
        """Return the classes that are held back, or the scalars where they are alone."""
        if content is None:
            return None
        if content.confusion is not None:
            return {WITHHELD: list(content.withheld)}
        return {name: getattr(content, name) for name in _SCALARS}

    def received(self, arrays: Arrays | None, layout: Layout, told: Any) -> Scores | None:
        """Return scores, with or without those of validation images, of which a site may have too few."""
        keys = told.keys() if isinstance(told, dict) else None
        if told is not None and keys != ({WITHHELD} if arrays is not None else {*_SCALARS}):
            raise WireError("the scores do not have the agreed keys", code="wire.form", key="scores")
        if arrays is None:
            return None if told is None else _read_scalars(told)
        if told is None:
            raise WireError("a confusion matrix without the classes that are held back", code="wire.form", key="scores")
        classes = layout.fields[CONFUSION].shape[0]
        sizes = Sizes(classes, 0, 0, validation=any(name.startswith(VALIDATION) for name in arrays))
        decoded = self.read(self.layout(sizes).checked(arrays, self.name))
        return None if decoded is None else replace(decoded, withheld=_withheld(told[WITHHELD], decoded))

    def permitted(self, content: Scores | None, leaving: Leaving) -> Scores | None:
        """Return what the policy allows."""
        return permitted_scores(content, leaving.policy, leaving.class_names)

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


def _read_scalars(told: Mapping[str, Any]) -> Scores:
    shares = told["accuracy"], told["mean_recall"]
    if not all(type(share) is float and 0 <= share <= 1 for share in shares):
        raise WireError("the scores are out of range", code="wire.range", key="scores")
    return Scores(*shares, whole_number(told, "samples", most=MAX_IMAGES))


def _withheld(classes: Any, scores: Scores) -> tuple[int, ...]:
    """Return the classes whose rows are held back: only zeros may stand there."""
    if not isinstance(classes, list) or not all(type(label) is int for label in classes):
        raise WireError("the classes held back are not a list of labels", code="wire.form", key="withheld")
    known = range(0 if scores.confusion is None else len(scores.confusion))
    if classes != sorted(set(classes)) or not set(classes) <= set(known):
        raise WireError("the classes held back are not in order, or do not exist", code="wire.range", key="withheld")
    if scores.confusion is not None and scores.confusion[classes].any():
        raise WireError(
            "the confusion matrix has counts of a class that is held back", code="wire.counts", key="withheld"
        )
    return tuple(classes)


def released_scores(
    logits: npt.NDArray[np.floating],
    labels: IntArray,
    policy: SitePolicy,
    class_names: tuple[str, ...],
    units: IntArray | None = None,
) -> Scores | None:
    """Return what may leave of a model's logits (n, C) on images with ``labels`` (n,).

    Histograms are of the classes alone whose rows of the confusion matrix leave, if none of these has a small cell, and
    tell of groups of at least ``policy.least_tested`` images: single scores are spread with their neighbours. How
    far the images of a patient (``units``, (n,); None where nobody knows) go together leaves if each of these classes
    has as many patients.
    """
    matrix = confusion_matrix(labels, logits.argmax(1), len(class_names))
    result = permitted_scores(score(matrix), policy, class_names)
    if result is None or result.confusion is None or not tells_all(result.confusion, matrix):
        return result
    leaves = result.confusion.sum(1)[labels] > 0
    histograms = ScoreHistograms.of(logits[leaves], labels[leaves]).spread(policy.least_tested)
    clustering = None if units is None else _clustering(logits[leaves], labels[leaves], units[leaves], policy)
    return replace(result, histograms=histograms, clustering=clustering)


def permitted_scores(scores: Scores | None, policy: SitePolicy, class_names: tuple[str, ...]) -> Scores | None:
    """Return the scores without what the policy does not allow.

    Classes that are held back count nowhere: what leaves is a function of the rows that leave, or for the scalars of
    the classes with enough test images. So no total, share or mean tells of the others.
    """
    if scores is None or policy.share_metrics == "none":
        return None
    if scores.confusion is None:
        return _scalars(scores)
    counts, chosen = scores.confusion.sum(1), policy.chosen_classes(class_names)
    opted_out = not chosen.any()
    leaves = (counts >= policy.least_tested) & (chosen | opted_out | (policy.share_metrics == "scalar"))
    confusion = without_small_cells(np.where(leaves[:, None], scores.confusion, 0), policy.min_cell_count)
    exact = tells_all(confusion, scores.confusion)
    if not confusion.any():
        return None
    if opted_out or policy.share_metrics == "scalar":
        # Always of the same classes: one that came and went would tell its images. Over one class, a model that always
        # answers with it scores 1.
        whole = np.array_equal(confusion.any(1), leaves & (counts > 0))
        return _scalars(score(confusion)) if whole and confusion.any(1).sum() > 1 else None
    # With a minimum of 1 a row of zeros hides nothing.
    held = ~confusion.any(1) if policy.least_tested > 1 else ~chosen
    withheld = sorted({*np.flatnonzero(held).tolist(), *scores.withheld})
    histograms = _permitted_histograms(scores.histograms, confusion, policy.least_tested) if exact else None
    unchanged = np.array_equal(confusion, scores.confusion)
    clustering = scores.clustering.rounded() if scores.clustering is not None and unchanged else None
    validation = permitted_scores(scores.validation, policy, class_names)
    return replace(
        score(confusion, tuple(withheld)), histograms=histograms, clustering=clustering, validation=validation
    )


def without_small_cells(confusion: IntArray, least: int) -> IntArray:
    """Return a confusion matrix (C, C) whose cells are zero or count ``least`` images and more.

    The recall of a class that stays is exact: errors that are too rare are joined with its most frequent one. A class
    whose right or wrong answers are too few to leave has a row of zeros.
    """
    right = np.diag(confusion)
    errors = confusion - np.diag(right)
    few = [(total > 0) & (total < least) for total in (right, errors.sum(1))]
    errors[few[0] | few[1]] = 0
    rare = errors * (errors < least)
    joined = errors - rare
    joined[np.arange(len(errors)), errors.argmax(1)] += rare.sum(1)
    result: IntArray = joined + np.diag(np.where(few[0] | few[1], 0, right))
    return result


def tells_all(left: IntArray, confusion: IntArray) -> bool:
    """Whether the rows of a matrix (C, C) that leave are those of the exact one: no rare errors were joined.

    Where some were, histograms and patients' residuals stay: of a network with sure answers they tell single cells.
    """
    rows = left.any(1)
    return np.array_equal(left[rows], confusion[rows])


def _clustering(
    logits: npt.NDArray[np.floating], labels: IntArray, units: IntArray, policy: SitePolicy
) -> Clustering | None:
    """Return how far the images of a patient go together; None where a class is of too few patients."""
    if fewest_patients(labels, units) < policy.least_tested:
        return None
    return Clustering.of(logits, labels, units).rounded()


def fewest_patients(labels: IntArray, units: IntArray) -> int:
    """Return of how many patients the class with the fewest is."""
    found = np.bincount(np.unique(np.stack([labels, units]), axis=1)[0])
    return int(found[found > 0].min())


def _permitted_histograms(
    histograms: ScoreHistograms | None, confusion: IntArray, least: int
) -> ScoreHistograms | None:
    """Return histograms that count just the images of a confusion matrix, in groups that are large enough; else None.

    They cannot be taken apart by class, so nothing of them leaves if they hold a class that may not.
    """
    if histograms is None or not np.array_equal(histograms.positives.sum(1), confusion.sum(1)):
        return None
    return histograms.spread(least)


def _scalars(scores: Scores) -> Scores:
    """Return the scores without their matrix; in full, their digits give away the counts they are ratios of."""
    return Scores(round(scores.accuracy, _DIGITS), round(scores.mean_recall, _DIGITS), scores.samples)
