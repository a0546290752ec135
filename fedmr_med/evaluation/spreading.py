"""Histograms of scores that may leave: single scores are hidden in groups, and the areas under curves stay.

The images of a row, in the order of their scores, fall into groups of nearly equal size. The images of a group are put
at even steps around its mean, as wide as its scores vary. So a row says the size, mean and spread of each group. Its
middle is moved to where the group beats as many of the images it is compared with as before, on average: joined at
one point instead, positives win too often (AUROC .05 too high at 11 to 20 positives a site).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def spread(row: IntArray, compared: IntArray, least: int) -> IntArray:
    """Spread the images of a histogram (bins,) in groups of at least ``least``; fewer images in all leave zeros.

    What comes out is left as it is when it comes in again.

    Args:
        row: images by bin.
        compared: images by bin whose ranks the groups keep, as positives are compared with negatives; zeros where
            there are none.
        least: fewest images of a group, 2 and more.
    """
    scores = np.repeat(np.arange(len(row)), row)
    if len(scores) < least:
        return np.zeros_like(row)
    groups = np.array_split(scores, len(scores) // least)
    ranks = np.cumsum(compared) - compared / 2
    placed = [
        group if _is_even(group) else _placed(group, *limits, ranks)
        for group, limits in zip(groups, _limits(groups, len(row) - 1), strict=True)
    ]
    return np.bincount(np.concatenate(placed), minlength=len(row)).astype(np.int64)


def _even(width: int, count: int) -> IntArray:
    """Return ``count`` positions at even steps from 0 to ``width``, as whole numbers."""
    return (2 * np.arange(count) * width + count - 1) // (2 * (count - 1))


def _is_even(group: IntArray) -> bool:
    return np.array_equal(group - group[0], _even(int(group[-1] - group[0]), len(group)))


def _limits(groups: Sequence[IntArray], last: int) -> list[tuple[int, int]]:
    """Return from where to where each group may reach, so that their order stays: halfway to the neighbours' means."""
    lows, highs = [0], []
    for below, above in pairwise(groups):
        halfway = round(float(below.mean() + above.mean()) / 2)
        highs.append(min(halfway, int(above[0])) if _is_even(above) else halfway)  # which stays where it is
        lows.append(max(halfway, int(below[-1])) if _is_even(below) else halfway)
    return list(zip(lows, [*highs, last], strict=True))


def _placed(group: IntArray, low: int, high: int, ranks: npt.NDArray[np.float64]) -> IntArray:
    """Return the positions of a group's images between two bins."""
    count, mean = len(group), float(group.mean())
    half = min(np.sqrt(3 * (count - 1) / (count + 1)) * group.std(), high - mean, mean - low)
    steps = _even(int(2 * max(0, half)), count)
    starts = np.arange(low, high - int(steps[-1]) + 1)
    missed = np.abs(ranks[starts[:, None] + steps].mean(1) - ranks[group].mean())
    nearest = starts[missed == missed.min()]
    start: np.int64 = nearest[np.abs(nearest + steps[-1] / 2 - mean).argmin()]
    return steps + start
