"""Suppression: classes that are opted out, or too small, leave nothing."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.errors import PolicyError
from fedmr_med.privacy.mechanisms.base import IntArray, Mechanism
from fedmr_med.prototypes import ClassSums

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Suppression(Mechanism):
    """Lets a class pass only if it was chosen and has at least ``smallest`` images.

    Attributes:
        smallest: fewest images of a class that leaves.
        chosen: (C,) the classes that are not opted out.
    """

    smallest: int
    chosen: Mask = field(compare=False)

    def passes(self, counts: IntArray) -> Mask:
        """Return a mask (C,) of the classes that may leave, given their numbers of images (C,)."""
        mask: Mask = self.chosen & (counts >= self.smallest)
        return mask

    def sums(self, sums: ClassSums) -> ClassSums:
        """Leave sums and counts of the other classes zero."""
        counts = sums.counts.numpy()
        return sums.only(torch.from_numpy(np.asarray(self.passes(counts) & (counts > 0))))

    def rows(self, table: IntArray) -> IntArray:
        """Leave the rows of the other classes zero; a row's sum is its number of images."""
        leaves = self.passes(table.reshape(len(table), -1).sum(1))
        return np.where(leaves.reshape(-1, *[1] * (table.ndim - 1)), table, 0)

    def check(self, counts: IntArray) -> None:
        """Look at the counts (C,) beside second moments, which cannot be taken apart by class.

        Raises:
            PolicyError: they are of a class that may not leave, so nothing may.
        """
        if bool(((counts > 0) & ~self.passes(counts)).any()):
            raise PolicyError(
                "the statistics hold a class that the policy does not share, or too few images of one.",
                code="policy.too-few-images",
            )

    def sentence(self) -> str:
        """Say from how many images on a class leaves."""
        return f"where there are at least {self.smallest} training images"
