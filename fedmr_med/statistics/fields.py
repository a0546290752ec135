"""Statistics as vectors of integers of a fixed shape, whoever shares what.

A field of real numbers is multiplied by a power of two and rounded. What a site puts in stays below 2^52 in size, which
float64 holds exactly, and at most 1000 < 2^10 sites add up: a total stays below 2^62, so sums modulo 2^64, read as
signed numbers, are the sums of the integers, with no overflow. The rounding error of a total is at most
``sites * 2 ** -(bits + 1)``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import WireError

Vector = npt.NDArray[np.uint64]

BITS = 20
"""Binary digits after the point of real numbers: a resolution of 1e-6, and sizes up to 4e9."""

LIMIT = 2**52
"""Size of what a site puts in, after the multiplication."""

MOST_SITES = 1000
"""Sites that add up; see above."""


@dataclass(frozen=True)
class Field:
    """Some numbers of a vector.

    Attributes:
        shape: of the array they are.
        bits: digits after the point; 0 for whole numbers.
    """

    shape: tuple[int, ...]
    bits: int = 0

    @property
    def size(self) -> int:
        """How many numbers."""
        return prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The fields of a vector, in their order."""

    fields: Mapping[str, Field]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(field.size for field in self.fields.values())

    def pack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Vector:
        """Return the arrays as one vector of integers modulo 2^64; a field that is not there is zero.

        Raises:
            WireError: an array is misshapen, unknown, not finite, or has a value that is too large.
        """
        if unknown := arrays.keys() - self.fields.keys():
            raise WireError(f"the sum has no field {min(unknown)!r}", code="wire.form", key="vector")
        parts = [self._packed(name, field, arrays.get(name)) for name, field in self.fields.items()]
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    def unpack(self, vector: Vector) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a total: float64 where there are digits after the point, else int64."""
        if vector.shape != (self.size,):
            raise WireError(f"the sum has {vector.shape} numbers, not {self.size}", code="wire.form", key="vector")
        signed, start, arrays = vector.astype(np.int64), 0, {}
        for name, field in self.fields.items():
            part = signed[start : start + field.size].reshape(field.shape)
            arrays[name] = part.astype(np.float64) / 2**field.bits if field.bits else part
            start += field.size
        return arrays

    @staticmethod
    def _packed(name: str, field: Field, array: npt.NDArray[Any] | None) -> Vector:
        if array is None:
            return np.zeros(field.size, np.uint64)
        if array.shape != field.shape:
            raise WireError(f"{name!r} has shape {array.shape}, not {field.shape}", code="wire.form", key=name)
        scaled = np.rint(array.astype(np.float64) * 2**field.bits)
        if not (np.abs(scaled) < LIMIT).all():
            raise WireError(
                f"{name!r} has a value that is not finite, or larger than {LIMIT / 2**field.bits:.3g}",
                code="wire.range",
                key=name,
            )
        packed: Vector = scaled.astype(np.int64).reshape(-1).astype(np.uint64)
        return packed
