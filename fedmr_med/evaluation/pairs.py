"""Whether one model is better than another on the same images: counts that add up over sites, and what they tell.

For each class a 2 x 2 table of the images that both models call right, one of them alone, and neither (McNemar 1947).
The difference of the balanced accuracies and its interval follow from the tables; how far the answers to a patient's
images go together widens it, as in :mod:`fedmr_med.evaluation.clustering`.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.base import Estimate, short
from fedmr_med.evaluation.clinical import Z95, IntArray
from fedmr_med.schema import Name, Strict

BOTH, FIRST, SECOND, NEITHER = range(4)
"""The cells of a class's table."""

_EXACT = 1000  # images on which the models differ, up to which the test sums up the binomial distribution


@dataclass(frozen=True)
class Pairs:
    """Two models on the images of one or more sites.

    Attributes:
        cells: (C, 4) images that both models call right, the first alone, the second alone, neither.
        together, alone: () squares of residuals of the difference, summed up over the images of a patient first, or
            image by image; both 0 where nobody tells whose the images are.
    """

    cells: IntArray
    together: npt.NDArray[np.float64]
    alone: npt.NDArray[np.float64]

    @classmethod
    def of(
        cls, first: IntArray, second: IntArray, labels: IntArray, num_classes: int, units: IntArray | None = None
    ) -> "Pairs":
        """Count the answers (n,) of two models on images with ``labels`` (n,), of the patients ``units`` (n,)."""
        right = [answers == labels for answers in (first, second)]
        cell = np.where(right[0], np.where(right[1], BOTH, FIRST), np.where(right[1], SECOND, NEITHER))
        cells = np.bincount(4 * labels + cell, minlength=4 * num_classes).reshape(num_classes, 4).astype(np.int64)
        if units is None:
            return cls(cells, np.zeros(()), np.zeros(()))
        images = cells.sum(1).clip(1)
        means = (cells[:, FIRST] - cells[:, SECOND]) / images
        residuals = (right[0].astype(np.float64) - right[1] - means[labels]) / images[labels] * len(labels)
        patients = np.bincount(units, weights=residuals)
        few = [count / (count - 1) if count > 1 else 1.0 for count in (len(np.unique(units)), len(labels))]
        return cls(cells, np.asarray(few[0] * (patients**2).sum()), np.asarray(few[1] * (residuals**2).sum()))

    def __add__(self, other: "Pairs") -> "Pairs":
        return Pairs(self.cells + other.cells, self.together + other.together, self.alone + other.alone)

    @property
    def effect(self) -> float:
        """By how much patients widen the variance of the difference."""
        return max(1.0, float(self.together / self.alone)) if self.alone > 0 else 1.0


class ClassPair(Strict):
    """Two models on the images of a class.

    Attributes:
        images: how many there are; 0 where none may be told of, or there is none.
        first, second: images that one of the models alone calls right.
        p: of McNemar's exact test that both are as often right; None without an image on which they differ.
    """

    images: int
    first: int
    second: int
    p: float | None


class PairRecord(Strict):
    """Whether the first model is better than the second.

    Attributes:
        sites: whose images they are.
        silent: the sites that tell nothing.
        classes: in the order of the labels.
        difference: of the balanced accuracies, or of the mean recalls over the classes that count; None without any.
        p: two-sided, that there is none, of the same normal approximation.
        whole: whether all classes count.
        effect: by how much patients widen the variance.
    """

    sites: tuple[Name, ...]
    silent: tuple[Name, ...] = ()
    classes: tuple[ClassPair, ...]
    difference: Estimate | None
    p: float | None
    whole: bool
    effect: float

    @classmethod
    def of(cls, pairs: Pairs, sites: tuple[str, ...], silent: tuple[str, ...] = ()) -> "PairRecord":
        """Sum up what sites tell."""
        cells = pairs.cells
        classes = tuple(
            ClassPair(
                images=int(row.sum()), first=int(row[FIRST]), second=int(row[SECOND]), p=mcnemar(*row[1:3].tolist())
            )
            for row in cells
        )
        present = cells.sum(1) > 0
        difference, p = _difference(cells[present], pairs.effect) if present.any() else (None, None)
        return cls(
            sites=sites,
            silent=silent,
            classes=classes,
            difference=difference,
            p=p,
            whole=bool(present.all()),
            effect=short(pairs.effect),
        )


def mcnemar(first: int, second: int) -> float | None:
    """Return the two-sided p of so many images that one of two models alone calls right; None without any."""
    number, fewer = first + second, min(first, second)
    if number == 0:
        return None
    if number > _EXACT:
        distance = max(0.0, abs(first - second) - 1) / math.sqrt(number)  # Edwards' correction
        return short(2 * NormalDist().cdf(-distance))
    tail = sum(math.comb(number, count) for count in range(fewer + 1))
    return short(min(1.0, 2 * tail / 2**number))


def _difference(cells: IntArray, effect: float) -> tuple[Estimate, float]:
    """Return the mean over the classes of the difference of the recalls, with its interval and p."""
    images = cells.sum(1)
    means = (cells[:, FIRST] - cells[:, SECOND]) / images
    # One image for each of the two that differ keeps a class without any from looking certain.
    safe = cells[:, FIRST] + cells[:, SECOND] + 1
    spread = (safe / (images + 1) - means**2).clip(0) / images
    mean, error = float(means.mean()), math.sqrt(float(spread.sum()) * effect) / len(cells)
    p = 2 * NormalDist().cdf(-abs(mean) / error) if error else 1.0
    ends = {"low": max(-1.0, mean - Z95 * error), "high": min(1.0, mean + Z95 * error)}
    return Estimate(value=short(mean), **{name: short(end) for name, end in ends.items()}), short(p)
