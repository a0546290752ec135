"""What of a model's scores on a site's images may leave under its policy."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.clinical import IntArray, ScoreHistograms
from fedmr_med.evaluation.clustering import Clustering
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.evaluation.metrics import scores as score
from fedmr_med.privacy.policy import SitePolicy

_DIGITS = 3


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
    patients = np.bincount(np.unique(np.stack([labels, units]), axis=1)[0])
    if patients[patients > 0].min() < policy.least_tested:
        return None
    return Clustering.of(logits, labels, units).rounded()


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
