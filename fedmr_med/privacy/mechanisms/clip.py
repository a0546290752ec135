"""Clipping: no image weighs more than the bound."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedmr_med.arrays import Arrays, distance
from fedmr_med.privacy.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Clip(Mechanism):
    """Scales each feature vector down to a length of at most ``norm``.

    One image touches one class, so it moves all class sums together by at most ``norm``, and the uncentred second
    moments, in Frobenius norm, by at most ``norm ** 2``.
    """

    norm: float

    def features(self, features: Tensor) -> Tensor:
        """Scale the rows (n, d) that are too long; values that are not finite become zero."""
        finite = features.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        lengths = finite.norm(dim=1, keepdim=True)
        clipped: Tensor = finite * (self.norm / lengths.clamp(min=self.norm))
        return clipped

    @property
    def sensitivity(self) -> float:
        """The bound itself."""
        return self.norm

    @property
    def scatter_sensitivity(self) -> float:
        """How far one image can move the uncentred second moments, in Frobenius norm."""
        return self.norm**2

    def sentence(self) -> str:
        """Say the bound."""
        return f"each image counts with a feature vector of length {self.norm:g} at most"


def clipped_update(model: Arrays, received: Arrays, norm: float) -> tuple[Arrays, float]:
    """Return a model whose parameters are at most ``norm`` away from the received ones, and how far they were.

    Args:
        model: trained weights and buffers by name; buffers stay as they are.
        received: the parameters that training started from.
        norm: the largest length of the change of all parameters together.
    """
    length = distance(model, received)
    if length <= norm:
        return model, length
    scale = np.float32(norm / length)
    return model | {name: start + scale * (model[name] - start) for name, start in received.items()}, length
