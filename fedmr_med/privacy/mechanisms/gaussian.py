"""Gaussian noise: what makes a release differentially private once one image's share of it is bounded."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.privacy.mechanisms.base import Mechanism
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure.noise import normals


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Noise of ``multiplier`` times the sensitivity on everything one image can move.

    Class sums of features clipped to ``norm`` and ``count_weight * norm`` times the counts move together by at most
    ``norm * sqrt(1 + count_weight ** 2)`` when one image comes or goes. Noise of that times the multiplier on both
    makes one Gaussian mechanism of sensitivity 1 and noise ``multiplier``. A small weight spends little of the
    sensitivity on the counts, which then get the larger noise: they are numbers of tens and more.

    Attributes:
        multiplier: noise relative to the sensitivity.
        norm: the clip of a feature vector.
        count_weight: weight of a count relative to the clip.
        with_moments: whether uncentred second moments of the features, over the clip, are released along.
    """

    multiplier: float
    norm: float
    count_weight: float = 0.25
    with_moments: bool = False

    @property
    def sensitivity(self) -> float:
        """Joint L2 sensitivity of the sums and the weighted counts."""
        return self.norm * math.sqrt(1 + self.count_weight**2 + self.with_moments)

    @property
    def sums_scale(self) -> float:
        """Standard deviation of the noise on each entry of a class sum."""
        return self.multiplier * self.sensitivity

    @property
    def counts_scale(self) -> float:
        """Standard deviation of the noise on each count."""
        return self.sums_scale / (self.count_weight * self.norm)

    @property
    def least_count(self) -> int:
        """The noisy count from which on a class counts: below it noise outweighs the images."""
        return math.ceil(4 * self.counts_scale)

    @property
    def moments_scale(self) -> float:
        """Standard deviation of the noise on each entry of the second moments."""
        return self.sums_scale * self.norm

    def add_to_moments(self, moments: npt.NDArray[np.float64], *, parts: int = 1) -> npt.NDArray[np.float64]:
        """Return second moments, the upper triangle as a vector, with one party's noise."""
        noisy: npt.NDArray[np.float64] = moments + self.moments_scale / math.sqrt(parts) * normals(moments.shape)
        return noisy

    def add_to(self, sums: ClassSums, weights: npt.NDArray[np.float64], *, parts: int = 1) -> ClassSums:
        """Return class sums and counts with one party's noise, of which ``parts`` such make the noise of the total.

        Args:
            sums: of clipped features; their own counts do not matter.
            weights: (C,) how many images, or patients, each class counts.
            parts: how many parties add noise; 1 adds all of it.
        """
        share = 1 / math.sqrt(parts)
        noisy = sums.sums.numpy() + share * self.sums_scale * normals(tuple(sums.sums.shape))
        counts = np.rint(weights + share * self.counts_scale * normals(weights.shape)).astype(np.int64)
        return ClassSums(torch.from_numpy(noisy), torch.from_numpy(counts))

    def sentence(self) -> str:
        """Say the noise."""
        return (
            f"noise of standard deviation {self.sums_scale:.3g} is on every entry of the class sums, and of "
            f"{self.counts_scale:.3g} on every count"
        )
