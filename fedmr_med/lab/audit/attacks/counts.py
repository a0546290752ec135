"""Numbers of images: read, subtracted, or solved for."""

import numpy as np

from fedmr_med.lab.audit.attacks import Floats, Ints
from fedmr_med.prototypes import ClassSums


def counts_read(released: ClassSums | None, counts: Ints) -> float:
    """Return the share of the site's classes whose exact number of images is in the release."""
    present = counts > 0
    if released is None or not present.any():
        return 0.0
    return float((released.counts.numpy() == counts)[present].mean())


def withheld_by_subtraction(released: ClassSums | None, samples: int, counts: Ints) -> float:
    """Return 1 if the number of images minus the shared counts is the exact number of those that are withheld."""
    shared = np.zeros_like(counts) if released is None else released.counts.numpy()
    withheld = int(counts[shared != counts].sum())
    return float(withheld > 0 and samples - int(shared.sum()) == withheld)


def rows_read(confusion: Ints | None, counts: Ints) -> float:
    """Return the share of classes whose exact number of test images is a row sum of the confusion matrix."""
    present = counts > 0
    if confusion is None or not present.any():
        return 0.0
    return float((confusion.sum(1) == counts)[present].mean())


def histogram_from_bias(gradient: Floats, bias: Floats, counts: Ints) -> float:
    """Return the share of classes whose number of images a step on one batch of all of them gives, to within one.

    The gradient of the classifier's bias is the mean of the predicted probabilities minus the shares of the classes.

    Args:
        gradient: (C,) of the bias.
        bias: (C,) that the server sent; with small features it alone makes the probabilities.
        counts: (C,) images.
    """
    expected = np.exp(bias - bias.max()) / np.exp(bias - bias.max()).sum()
    guessed = counts.sum() * (expected - gradient)
    present = counts > 0
    return float((np.abs(guessed - counts) <= 1)[present].mean())
