"""Sets of classes that hold the right one as often as asked: conformal prediction by class, from score histograms.

A class is in an image's set from a least probability on. That is the score which few enough test images of the class
lie below, so the set holds the class for a new image like them with the coverage asked (label-conditional conformal
prediction; Vovk, 2012). A model abstains where the set is not one class. Pure functions on arrays.
"""

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.clinical import EDGES, FloatArray, IntArray, softmax

COVERAGES = (0.8, 0.9, 0.95)
"""The coverages that thresholds are kept for."""

MARGIN = 0.5
"""The share of the misses asked for that thresholds are made with: sites tell the lowest scores in groups only."""

SetThresholds = dict[str, tuple[float, ...]]
"""The least probability of each class, (C,), by coverage as :func:`key_of` writes it."""


def key_of(coverage: float) -> str:
    """Return a coverage as files name it, such as ``0.9``."""
    return f"{coverage:g}"


def least_probabilities(positives: IntArray, misses: float) -> FloatArray:
    """Return from which probability on each class is in a set, (C,).

    A new image of the class lies below it with probability ``misses`` at most, if the class's images and the new one
    are exchangeable: that is the finite-sample rank, and the lower edge of its bin. A class of too few images gets 0:
    it is in every set.

    Args:
        positives: (C, BINS) images of each class by its probability.
        misses: between 0 and 1.
    """
    ranks = np.floor(misses * (positives.sum(1) + 1) + 1e-9)
    bins = [int(np.searchsorted(row.cumsum(), rank)) for row, rank in zip(positives, ranks, strict=True)]
    return np.where(ranks > 0, EDGES[bins], 0.0)


def set_thresholds(positives: IntArray) -> SetThresholds:
    """Return the thresholds that a model file keeps, from the histograms (C, BINS) of all sites together."""
    return {key_of(c): tuple(least_probabilities(positives, MARGIN * (1 - c)).tolist()) for c in COVERAGES}


def sets_of(logits: FloatArray, least: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which classes are in the sets of images, (n, C); probabilities are those of ``logits`` (n, C) as they are.

    A set can be empty: then the image is like those of no class.
    """
    return np.asarray(softmax(logits) >= least)
