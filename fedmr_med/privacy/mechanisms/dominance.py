"""Dominance: no image, or patient, makes up more than a share of what a feature says of a class.

A class of many images can still have a feature that one of them carries alone: then its sum is that image's value. The
rule is the one of official statistics beside that of small cells (p % rule; Hundepool et al., 2012).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedmr_med.privacy.mechanisms.base import Mechanism

_QUANTILES = 17


@dataclass(frozen=True)
class Dominance(Mechanism):
    """Tells the features of a class that one of its units dominates; their sums must not leave.

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
