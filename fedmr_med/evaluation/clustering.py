"""How far the images of one patient are right and wrong together: sums that add up over sites, for wider intervals.

Images of a patient resemble each other, so many of few patients tell less than as many of many. A site sums, for each
figure, the squares of its residuals image by image and patient by patient. Residuals are around the site's own figures,
so the sums add up. Their ratio is the design effect: by how much the variance is larger than that of as many
independent images (Kish 1965; the numerator is the cluster-robust variance of Liang and Zeger 1986).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.clinical import BINS, Z95, FloatArray, IntArray, bins_of, softmax

Mask = npt.NDArray[np.bool_]

_STUDENT = (Z95**2 + 1) / 2
_DIGITS = 2  # of what leaves: enough for an interval, too few to solve for single patients
WHOLE = ("accuracy", "mean_recall", "brier")
BY_CLASS = ("sensitivity", "specificity", "auroc")


@dataclass(frozen=True)
class Clustering:
    """Squares of residuals of each figure: those of ``WHOLE``, then those of ``BY_CLASS`` for each class.

    Attributes:
        together: (3 + 3 C,) of the sums over each patient's images, added up.
        alone: (3 + 3 C,) of single images, added up.
    """

    together: FloatArray
    alone: FloatArray

    @classmethod
    def of(cls, logits: npt.NDArray[np.floating], labels: IntArray, units: IntArray) -> "Clustering":
        """Sum up the residuals of logits (n, C) of images with ``labels`` (n,), of the patients ``units`` (n,)."""
        exact = np.asarray(logits, dtype=np.float64)
        count, classes = exact.shape
        probabilities, answers = softmax(exact), exact.argmax(1)
        own = labels[:, None] == np.arange(classes)
        images, others = own.sum(0).clip(1), (~own).sum(0).clip(1)
        right, everybody = (answers == labels).astype(np.float64), np.ones(count, np.bool_)
        brier = ((probabilities - own) ** 2).sum(1)
        around_mean = partial(_residuals, units)
        sensitivity = [around_mean(right, own[:, c]) for c in range(classes)]
        specificity = [around_mean((answers == c).astype(np.float64), ~own[:, c]) for c in range(classes)]
        ranks = [_ranks(probabilities[:, c]) for c in range(classes)]
        columns = [
            around_mean(right, everybody),
            sum((count / images[c] * part for c, part in enumerate(sensitivity)), np.zeros((2, count))),
            around_mean(brier, everybody),
            *sensitivity,
            *specificity,
            *(
                count / images[c] * around_mean(rank, own[:, c]) - count / others[c] * around_mean(rank, ~own[:, c])
                for c, rank in enumerate(ranks)
            ),
        ]
        together = [float((np.bincount(units, weights=column[0]) ** 2).sum()) for column in columns]
        return cls(np.array(together), np.array([float((column[1] ** 2).sum()) for column in columns]))

    def __add__(self, other: "Clustering") -> "Clustering":
        return Clustering(self.together + other.together, self.alone + other.alone)

    def rounded(self) -> "Clustering":
        """Return what may leave: two digits of each sum."""
        return Clustering(_rounded(self.together), _rounded(self.alone))

    def effect(self, name: str) -> float:
        """Return the design effect of a figure of all classes together, 1 at least."""
        return float(self._effects[WHOLE.index(name)])

    def effects(self, name: str) -> FloatArray:
        """Return the design effects (C,) of a figure of each class."""
        effects: FloatArray = self._effects[len(WHOLE) :].reshape(len(BY_CLASS), -1)[BY_CLASS.index(name)]
        return effects

    @property
    def _effects(self) -> FloatArray:
        known = self.alone > 0
        ratio = np.where(known, self.together / np.where(known, self.alone, 1), np.nan)
        # Where no answer differs from the others nothing tells how far patients matter; it is taken from all answers.
        usual = 1.0 if np.isnan(ratio[0]) else ratio[0]
        effects: FloatArray = np.maximum(np.where(known, ratio, usual), 1.0)
        return effects


def most_residuals(classes: int, images: int) -> tuple[float, float]:
    """Return how much each sum of ``together``, and of ``alone``, can be at most, for any answers and patients.

    An image's residual of the mean recall or of the area under a curve is at most ``images`` times a share of 1, of
    which each class has one among its images; others are at most 2. The scale is largest for two images.
    """
    alone = 1.1 * _small(2) * (2 + classes) * max(images, 2) ** 2  # rounding to two digits adds 5 % at most
    return alone * images, alone


def _residuals(units: IntArray, values: FloatArray, mask: Mask) -> FloatArray:
    """Return values minus their mean among the images of a mask (n,), 0 for the others, scaled for few units, (2, n).

    The first row is scaled for the units of the images, the second for the images.
    """
    mean = values[mask].mean() if mask.any() else 0.0
    scales = [_small(len(np.unique(units[mask]))), _small(int(mask.sum()))]
    residuals: FloatArray = np.sqrt(scales)[:, None] * np.where(mask, values - mean, 0.0)
    return residuals


def _small(count: int) -> float:
    """Return by how much a variance of so many is too small: their mean is estimated, and so is the variance.

    The second factor is nearly the square of Student's quantile over the normal one.
    """
    return 1.0 if count < 2 else count / (count - 1) * (1 + _STUDENT / (count - 1))


def _ranks(scores: FloatArray) -> FloatArray:
    """Return the middle rank of the bin of each score (n,), from 0 to 1: nearly the share of images that it beats."""
    bins = bins_of(scores)
    counts = np.bincount(bins, minlength=BINS)
    ranks: FloatArray = ((np.cumsum(counts) - counts / 2) / max(1, len(scores)))[bins]
    return ranks


def _rounded(values: FloatArray) -> FloatArray:
    return np.array([float(f"{value:.{_DIGITS}g}") for value in values.tolist()])
