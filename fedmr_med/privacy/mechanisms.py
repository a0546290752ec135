"""The defences that change numbers: what each does to what leaves."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedmr_med.arrays import Arrays, distance
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure.noise import normals

IntArray = npt.NDArray[np.int64]

_QUANTILES = 17


def without_small_parts(parts: IntArray, whole: int, least: int) -> IntArray:
    """Return the parts (k,) of so many images of which each counts at least ``least``, and zeros in the others' places.

    What is left of the whole is none or at least as many, too, or it would be the number of a part that is held back;
    so the smallest parts go as well until it is.
    """
    left: IntArray = np.where(parts >= least, parts, 0)
    while left.any() and 0 < whole - int(left.sum()) < least:
        left[np.where(left > 0, left, left.max() + 1).argmin()] = 0
    return left


@dataclass(frozen=True)
class Dominance:
    """Tells the features of a class that one image, or patient, dominates; their sums must not leave.

    A class of many images can still have a feature that one of them carries alone: its sum is that image's value. The
    rule is the one of official statistics beside that of small cells (p % rule; Hundepool et al., 2012).

    What a unit, an image or a patient, says in a feature is how far its values are from a value that others have, added
    up: who knows that value, such as the zero of a rectifier, reads the rest from the sum. The rule holds for each of
    17 quantiles of the feature, so for every value that a sixteenth of the images share.

    Attributes:
        share: the largest share of one unit in what all of them say, between 0 and 1.
    """

    share: float

    @property
    def fewest(self) -> int:
        """How few units can hold to the rule."""
        return math.ceil(1 / self.share)

    def passes(self, features: Tensor, units: Tensor) -> Tensor:
        """Return the mask (d,) of the features that no unit dominates; one that is constant says nothing, and passes.

        Args:
            features: (n, d) of the images of a class.
            units: (n,) the patient of each, or the image itself, counted from 0.
        """
        exact = features.double()
        rising = exact.sort(0).values
        mask = torch.ones(exact.shape[1], dtype=torch.bool)
        for center in rising[torch.linspace(0, len(exact) - 1, _QUANTILES).round().long()]:
            said = torch.zeros(int(units.max()) + 1, exact.shape[1], dtype=torch.float64)
            said.index_add_(0, units, (exact - center).abs())
            mask &= said.max(0).values <= self.share * said.sum(0)
        return mask

    def sentence(self) -> str:
        """Say the share."""
        return f"no image or patient makes up more than {self.share:.0%} of what a feature says of a class"


def clipped_features(features: Tensor, norm: float) -> Tensor:
    """Scale the rows (n, d) that are longer than ``norm`` down to it; values that are not finite become zero.

    One image touches one class, so it moves all class sums together by at most ``norm``, and the uncentred second
    moments, in Frobenius norm, by at most ``norm ** 2``.
    """
    finite = features.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    lengths = finite.norm(dim=1, keepdim=True)
    clipped: Tensor = finite * (norm / lengths.clamp(min=norm))
    return clipped


def clipped_update(model: Arrays, received: Arrays, norm: float) -> tuple[Arrays, float]:
    """Return a model whose parameters are at most ``norm`` away from the received ones, and how far they were.

    Arrays of ``model`` that are not in ``received``, its buffers, stay as they are.
    """
    length = distance(model, received)
    if length <= norm:
        return model, length
    scale = np.float32(norm / length)
    return model | {name: start + scale * (model[name] - start) for name, start in received.items()}, length


@dataclass(frozen=True)
class Gaussian:
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
    def sums_scale(self) -> float:
        """Standard deviation of the noise on each entry of a class sum."""
        return self.multiplier * (self.norm * math.sqrt(1 + self.count_weight**2 + self.with_moments))

    @property
    def counts_scale(self) -> float:
        """Standard deviation of the noise on each count."""
        return self.sums_scale / (self.count_weight * self.norm)

    @property
    def moments_scale(self) -> float:
        """Standard deviation of the noise on each entry of the second moments."""
        return self.sums_scale * self.norm

    @property
    def least_count(self) -> int:
        """The noisy count from which on a class counts: below it noise outweighs the images."""
        return math.ceil(4 * self.counts_scale)

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

    def add_to_moments(self, moments: npt.NDArray[np.float64], *, parts: int) -> npt.NDArray[np.float64]:
        """Return second moments, the upper triangle as a vector, with one party's noise."""
        noisy: npt.NDArray[np.float64] = moments + self.moments_scale / math.sqrt(parts) * normals(moments.shape)
        return noisy
