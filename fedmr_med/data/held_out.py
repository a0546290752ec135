"""Training data set aside to choose settings on, in place of a test set that is to be looked at once."""

import numpy as np

from fedmr_med.data.base import Fold, SubsetFold
from fedmr_med.seeding import numpy_generator


def set_aside(fold: Fold, share: float, seed: int) -> tuple[SubsetFold, SubsetFold]:
    """Return what stays of a train fold, and what is held out of it: ``share`` of each class, never all of one.

    Args:
        fold: the training data of one site.
        share: between 0 and 1.
        seed: the job's; it draws the items.
    """
    held = np.zeros(len(fold), dtype=np.bool_)
    for label in np.unique(fold.labels):
        rows = np.flatnonzero(fold.labels == label)
        count = min(round(share * len(rows)), len(rows) - 1)
        held[numpy_generator(seed, "validation", int(label)).permutation(rows)[:count]] = True
    return SubsetFold(fold, np.flatnonzero(~held)), SubsetFold(fold, np.flatnonzero(held))
