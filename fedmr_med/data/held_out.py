"""Training data set aside to choose settings on, in place of a test set that is to be looked at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedmr_med.data.base import Fold, SubsetFold
from fedmr_med.seeding import numpy_generator


@dataclass(frozen=True)
class JoinedFold:
    """Several folds, one after the other, without a copy of them."""

    folds: Sequence[Fold]

    @cached_property  # every batch asks for them
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each item, (n,) int64."""
        return np.concatenate([fold.labels for fold in self.folds])

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum([len(fold) for fold in self.folds])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        fold = self.folds[number]
        return fold[index - int(self._ends[number]) + len(fold)]


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
