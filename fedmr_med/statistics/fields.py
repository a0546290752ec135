"""The fields of additive statistics: names, shapes, types and bounds, the same for every site, whoever shares what.

On the wire a statistic has exactly its fields (:meth:`Layout.checked`). A secure sum takes the very same fields as one
vector of integers (:meth:`Layout.pack`).

There a field of real numbers is multiplied by a power of two and rounded. What a site puts in stays below 2^52 in size,
which float64 holds exactly, and at most 1000 < 2^10 sites add up: a total stays below 2^62, so sums modulo 2^64, read
as signed numbers, are the sums of the integers, with no overflow. The rounding error of a total is at most
``sites * 2 ** -(bits + 1)``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedmr_med.arrays import Arrays, Vector, difference
from fedmr_med.errors import WireError

Values = Mapping[str, npt.NDArray[Any]]
"""What a site puts into a statistic, or what several sites put in together, by field."""

BITS = 20
"""Binary digits after the point of real numbers: a resolution of 1e-6, and sizes up to 4e9."""

MOST = 10**12
"""The largest whole number that a message may have beside its arrays."""

LIMIT = 2**52
"""Size of what a site puts in, after the multiplication."""


@dataclass(frozen=True)
class Field:
    """An array of a statistic.

    Attributes:
        shape: of the array.
        bits: binary digits after the point in a secure sum; 0 for whole numbers.
        least, most: bounds of what one site puts in.
        precision: of real numbers outside a secure sum.
        by_class: whether the array has one row per class.
    """

    shape: tuple[int, ...]
    bits: int = 0
    least: float = -math.inf
    most: float = math.inf
    precision: Literal["float64", "float32"] = "float64"
    by_class: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the array on the wire."""
        return np.dtype(self.precision if self.bits else "int64")

    @property
    def size(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The fields of one or more statistics, in their order."""

    fields: Mapping[str, Field]

    def sent(self, values: Values) -> Arrays:
        """Return values with the types that they have on the wire."""
        return {name: values[name].astype(field.dtype, copy=False) for name, field in self.fields.items()}

    def checked(self, arrays: Arrays, what: str) -> Arrays:
        """Return the arrays of one site, named ``what`` in messages, that have exactly these fields.

        Raises:
            WireError: a name, shape or type is not the agreed one, or a value is not finite or out of bounds.
        """
        forms = {name: (field.shape, field.dtype) for name, field in self.fields.items()}
        if different := difference(arrays, forms):
            raise WireError(f"{what!r} {different}", code="wire.form", key=what)
        for name, field in self.fields.items():
            if not np.isfinite(arrays[name]).all():
                raise WireError(f"{name!r} of {what!r} has NaN or infinite values", code="wire.not-finite", key=what)
            if (arrays[name] < field.least).any() or (arrays[name] > field.most).any():
                bounds = f"between {field.least:g} and {field.most:g}"
                raise WireError(f"{name!r} of {what!r} has a value that is not {bounds}", code="wire.range", key=what)
        return arrays

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(field.size for field in self.fields.values())

    def pack(self, arrays: Values) -> Vector:
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


def add(*values: Values) -> Arrays:
    """Add values field by field, in the order in which they are given."""
    return {name: sum((other[name] for other in values[1:]), start=array) for name, array in values[0].items()}


def whole_number(meta: Mapping[str, Any] | None, name: str, *, most: int = MOST) -> int:
    """Return a whole number from 0 to ``most``; a bool or a text is none."""
    value = (meta or {}).get(name)
    if type(value) is not int:
        raise WireError(f"{name!r} is a {type(value).__name__}, not a whole number", code="wire.form", key=name)
    if not 0 <= value <= most:
        raise WireError(f"{name!r} is not between 0 and {most}", code="wire.range", key=name)
    return value
