"""Class prototypes: what a site contributes (sums and counts) and what the server keeps (means and ages).

Sites send sums and counts, not means. They are additive: the server's class-weighted mean
g_c = sum_k N_k^c g_k^c / sum_k N_k^c is exact, and a site that opted out is simply absent from both sums.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

PARTS = ("means", "available", "age")
"""Of :class:`Prototypes`."""


@dataclass(frozen=True)
class ClassSums:
    """Per-class sums of features.

    Attributes:
        sums: (C, d) float64.
        counts: (C,) int64, how many samples each sum holds.
    """

    sums: Tensor
    counts: Tensor

    def __post_init__(self) -> None:
        if self.sums.ndim != 2 or self.counts.shape != self.sums.shape[:1]:
            raise ValueError(
                f"sums must be (C, d) and counts (C,), not {tuple(self.sums.shape)} and {tuple(self.counts.shape)}"
            )

    @classmethod
    def zeros(cls, num_classes: int, feature_size: int) -> "ClassSums":
        """Return the sums of no samples."""
        return cls(
            torch.zeros(num_classes, feature_size, dtype=torch.float64), torch.zeros(num_classes, dtype=torch.int64)
        )

    @classmethod
    def from_features(cls, features: Tensor, labels: Tensor, num_classes: int) -> "ClassSums":
        """Sum the rows of ``features`` (B, d) by ``labels`` (B,), in float64 on the CPU."""
        labels = labels.cpu()
        sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64)
        sums.index_add_(0, labels, features.detach().cpu().double())
        return cls(sums, torch.bincount(labels, minlength=num_classes))

    def __add__(self, other: "ClassSums") -> "ClassSums":
        return ClassSums(self.sums + other.sums, self.counts + other.counts)

    @property
    def norm(self) -> float | None:
        """Mean length of the class means; None where no class has samples."""
        held = self.counts > 0
        means = self.sums[held] / self.counts[held][:, None]
        return float(torch.linalg.vector_norm(means, dim=1).mean()) if held.any() else None

    def fewer(self, shares: Tensor | float) -> "ClassSums":
        """Return the sums of a share of the samples, (C,) or one for all, with the same means; one of a class stays."""
        counts = torch.where(self.counts > 0, (self.counts * shares).round().long().clamp(min=1), 0)
        return ClassSums(self.sums * (counts / self.counts.clamp(min=1))[:, None], counts)

    def only(self, classes: Tensor) -> "ClassSums":
        """Return a copy in which classes outside the bool mask (C,) have neither sum nor count."""
        return ClassSums(self.sums * classes[:, None], self.counts * classes)


@dataclass(frozen=True)
class Prototypes:
    """The global prototypes.

    Attributes:
        means: (C, d) float32; rows of classes without a prototype are zero.
        available: (C,) bool, whether anybody ever shared the class.
        age: (C,) int64, rounds since the class was last shared.
    """

    means: Tensor
    available: Tensor
    age: Tensor

    def __post_init__(self) -> None:
        if self.means.ndim != 2 or not self.available.shape == self.age.shape == self.means.shape[:1]:
            raise ValueError(
                f"means must be (C, d), available and age (C,), not {tuple(self.means.shape)}, "
                f"{tuple(self.available.shape)} and {tuple(self.age.shape)}"
            )

    @classmethod
    def none(cls, num_classes: int, feature_size: int) -> "Prototypes":
        """Return the state in which nobody has shared anything yet."""
        return cls(
            torch.zeros(num_classes, feature_size),
            torch.zeros(num_classes, dtype=torch.bool),
            torch.zeros(num_classes, dtype=torch.int64),
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "Prototypes":
        """Return what :meth:`arrays` gave, whose arrays it shares."""
        return cls(*(torch.from_numpy(arrays[name]) for name in PARTS))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return its parts by name, as they travel."""
        return {name: getattr(self, name).numpy() for name in PARTS}

    def younger_than(self, limit: int | None) -> "Prototypes":
        """Return the prototypes of which no more than ``limit`` rounds have passed since the class was last shared."""
        if limit is None:
            return self
        return Prototypes(self.means, self.available & (self.age <= limit), self.age)

    def or_else(self, other: "Prototypes") -> "Prototypes":
        """Return these prototypes, and those of ``other`` for classes that have none here."""
        return Prototypes(
            torch.where(self.available[:, None], self.means, other.means),
            self.available | other.available,
            torch.where(self.available, self.age, other.age),
        )

    def updated(self, shared: ClassSums, inertia: float = 0.0) -> "Prototypes":
        """Return the prototypes after a round: shared classes move to their new mean, the others stay and age.

        Args:
            inertia: share of the old prototype that stays, where there is one; 0 takes the new mean.
        """
        fresh = shared.counts > 0
        means = (shared.sums / shared.counts.clamp(min=1)[:, None]).to(self.means.dtype)
        if inertia:
            moved = inertia * self.means + (1 - inertia) * means
            means = torch.where(self.available[:, None], moved, means)
        return Prototypes(
            torch.where(fresh[:, None], means, self.means),
            self.available | fresh,
            torch.where(fresh | ~self.available, 0, self.age + 1),
        )
