"""What every defence is made of."""

import math
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedmr_med.prototypes import ClassSums

IntArray = npt.NDArray[np.int64]


class Mechanism(ABC):
    """One defence. What it does not touch passes as it is.

    Each method takes what a site would release and returns what is left of it.
    """

    def features(self, features: Tensor) -> Tensor:
        """Change features (n, d) before they are summed."""
        return features

    def sums(self, sums: ClassSums) -> ClassSums:
        """Change class sums and counts."""
        return sums

    def rows(self, table: IntArray) -> IntArray:
        """Change a table of counts (C, ...) with one row per class: a confusion matrix or a histogram of scores."""
        return table

    def scatter(self, scatter: Tensor) -> Tensor:
        """Change a matrix (d, d) of second moments of the shared classes' features."""
        return scatter

    @property
    def sensitivity(self) -> float:
        """How far, in L2 norm, one image more or less can move the class sums that this defence lets through.

        Infinite for a defence that bounds nothing: no noise can be calibrated to it.
        """
        return math.inf

    @abstractmethod
    def sentence(self) -> str:
        """Say in plain words what it does; empty where it does nothing."""
