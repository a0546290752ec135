"""The wire format of score histograms: six arrays, checked against the confusion matrix they come with."""

import numpy as np

from fedmr_med.arrays import Arrays, Forms, difference
from fedmr_med.errors import WireError
from fedmr_med.evaluation.clinical import BINS, MAX_NLL, TEMPERATURES, IntArray, ScoreHistograms

_COUNT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_SLACK = 1e-6  # of sums of floating point numbers


def encode_histograms(histograms: ScoreHistograms) -> Arrays:
    """Encode histograms; a class that is held back has no count in them."""
    return dict(vars(histograms))


def decode_histograms(arrays: Arrays, confusion: IntArray) -> ScoreHistograms:
    """Decode histograms of the images that a confusion matrix (C, C) counts.

    Raises:
        WireError: names, shapes or types are not the agreed ones, or the values cannot be of these images.
    """
    rows = (len(confusion), BINS)
    counted: Forms = {"positives": (rows, _COUNT), "negatives": (rows, _COUNT)}
    counted |= {"right": ((BINS,), _COUNT), "wrong": ((BINS,), _COUNT)}
    summed: Forms = {"nll": ((len(TEMPERATURES),), _FLOAT), "brier": ((2,), _FLOAT)}
    if found := difference(arrays, counted | summed):
        raise WireError(f"the histograms {found}", code="wire.form", key="histograms")
    histograms = ScoreHistograms(**arrays)
    counts, samples = confusion.sum(1), int(confusion.sum())
    if any((arrays[name] < 0).any() or (arrays[name] > samples).any() for name in counted):
        raise WireError(
            "the histograms have a count below zero or above the number of images", code="wire.range", key="histograms"
        )
    if not np.array_equal(histograms.positives.sum(1), counts):
        raise WireError(
            "the histograms count other images than the confusion matrix", code="wire.counts", key="histograms"
        )
    if not np.array_equal(histograms.negatives.sum(1), samples - counts):
        raise WireError(
            "the histograms count other negatives than the confusion matrix", code="wire.counts", key="histograms"
        )
    answers = int(histograms.right.sum()), int(histograms.wrong.sum())
    right = int(np.trace(confusion))
    if answers not in ((0, 0), (right, samples - right)):
        raise WireError(
            "the histograms count other answers than the confusion matrix", code="wire.counts", key="histograms"
        )
    most = samples * np.array([2.0, 4.0])
    for name, values, limit in (("nll", histograms.nll, samples * MAX_NLL), ("brier", histograms.brier, most)):
        # A comparison with NaN is false, so this refuses what is not finite as well.
        if not ((values >= 0) & (values <= limit + _SLACK)).all():
            raise WireError(f"the {name} of the histograms is out of range", code="wire.range", key=name)
    return histograms
