"""Scores from a confusion matrix: the additive form in which test results are pooled over sites."""

from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.clinical import IntArray, ScoreHistograms
from fedmr_med.evaluation.clustering import Clustering


@dataclass(frozen=True)
class Scores:
    """How well a model does on one test set.

    Attributes:
        accuracy: share of right answers.
        mean_recall: over the classes that are present in the test set.
        samples: size of the test set.
        confusion: (C, C) counts, row = true class, column = predicted class; None where a site shares only
            the scalars.
        withheld: the classes whose rows a site holds back. They are zero in ``confusion`` and count nowhere else, so
            nobody can tell whether there are none or a few.
        histograms: of the probabilities on the images that ``confusion`` counts; None where they are not shared.
        clustering: of the answers on these images; None where nobody tells whose they are.
        validation: of the same model on the images that choose, which are no test images; None where there are none.
    """

    accuracy: float
    mean_recall: float
    samples: int
    confusion: IntArray | None = None
    withheld: tuple[int, ...] = ()
    histograms: ScoreHistograms | None = None
    clustering: Clustering | None = None
    validation: "Scores | None" = None


def confusion_matrix(labels: IntArray, predictions: IntArray, num_classes: int) -> IntArray:
    """Count (true class, predicted class) pairs, (C, C)."""
    cells = np.bincount(labels * num_classes + predictions, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes).astype(np.int64)


def scores(confusion: IntArray, withheld: tuple[int, ...] = ()) -> Scores:
    """Score a confusion matrix (C, C), of which rows may be held back; both accuracies are 0 for an empty test set."""
    present = confusion.sum(1) > 0
    samples = int(confusion.sum())
    right = np.diag(confusion)
    recall = right[present] / confusion.sum(1)[present]
    return Scores(
        accuracy=float(right.sum() / max(samples, 1)),
        mean_recall=float(recall.mean()) if samples else 0.0,
        samples=samples,
        confusion=confusion,
        withheld=withheld,
    )


def scored(logits: npt.NDArray[np.floating], labels: IntArray, units: IntArray | None = None) -> Scores:
    """Score logits (n, C) of images with ``labels`` (n,), histograms included.

    Args:
        units: (n,) the patient of each image, as whole numbers; None where nobody knows.
    """
    total = scores(confusion_matrix(labels, logits.argmax(1), logits.shape[1]))
    clustering = None if units is None else Clustering.of(logits, labels, units)
    return replace(total, histograms=ScoreHistograms.of(logits, labels), clustering=clustering)


def recalls(confusion: IntArray) -> tuple[float | None, ...]:
    """Return the share of right answers of each class; None without images."""
    pairs = zip(np.diag(confusion).tolist(), confusion.sum(1).tolist(), strict=True)
    return tuple(right / count if count else None for right, count in pairs)


def classes_text(count: int | None, of: int) -> str:
    """Say how many classes of a task count; None where that is not known."""
    return "an unknown number of classes" if count is None else f"{count} of {of} classes"


def pooled(site_scores: dict[str, Scores]) -> tuple[Scores | None, tuple[str, ...]]:
    """Pool the test sets of the sites that share their confusion matrix.

    Returns:
        The pooled scores (None if no site shares its matrix) and the names of the sites they cover. Held back are the
        classes that only sites have which let nothing of them out; histograms are of the sites that share them. What
        sites share of their validation images is pooled by itself.
    """
    matrices = {site: s.confusion for site, s in sorted(site_scores.items()) if s.confusion is not None}
    if not matrices:
        return None, ()
    matrix = np.sum(list(matrices.values()), axis=0)
    held = sorted({label for site in matrices for label in site_scores[site].withheld if not matrix[label].any()})
    parts = [part for site in matrices if (part := site_scores[site].histograms) is not None]
    known = [of_site for site in matrices if (of_site := site_scores[site].clustering) is not None]
    pool = replace(
        scores(matrix, tuple(held)),
        histograms=reduce(add, parts) if parts else None,
        clustering=reduce(add, known) if known else None,
        validation=pooled({site: chosen for site in matrices if (chosen := site_scores[site].validation)})[0],
    )
    return pool, tuple(matrices)
