"""Gaussian noise: what makes a release differentially private once one image's share of it is bounded."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedmr_med.privacy.mechanisms.base import Mechanism


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
    """

    multiplier: float
    norm: float
    count_weight: float = 0.25

    @property
    def sensitivity(self) -> float:
        """Joint L2 sensitivity of the sums and the weighted counts."""
        return self.norm * math.sqrt(1 + self.count_weight**2)

    @property
    def sums_scale(self) -> float:
        """Standard deviation of the noise on each entry of a class sum."""
        return self.multiplier * self.sensitivity

    @property
    def counts_scale(self) -> float:
        """Standard deviation of the noise on each count."""
        return self.sums_scale / (self.count_weight * self.norm)

    def noise(
        self, shape: tuple[int, ...], scale: float, generator: np.random.Generator, *, parts: int = 1
    ) -> npt.NDArray[np.float64]:
        """Return one party's noise, of which ``parts`` such add up to a standard deviation of ``scale``.

        Args:
            shape: of the noise.
            scale: standard deviation of the total.
            generator: of the party; seeded from the operating system wherever the noise protects somebody.
            parts: how many parties add theirs.
        """
        return generator.normal(0.0, scale / math.sqrt(parts), shape)

    def sentence(self) -> str:
        """Say the noise."""
        return (
            f"noise of standard deviation {self.sums_scale:.3g} is on every entry of the class sums, and of "
            f"{self.counts_scale:.3g} on every count"
        )
