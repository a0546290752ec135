"""Named arrays, such as a model's weights, and the one check of their names, shapes and types."""

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

Vector = npt.NDArray[np.uint64]
"""Integers modulo 2^64, as secure sums add them."""

Form = tuple[tuple[int, ...], np.dtype[Any]]
Forms = dict[str, Form]
"""Shape and type of each array by name."""


def forms_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Forms:
    """Return the shape and type of each array."""
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


class Hash(Protocol):
    """A hash of :mod:`hashlib` that takes more bytes."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""


def add_to_hash(found: Hash, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Add names, types, shapes and values to a hash, in the order of the names."""
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(array.tobytes())


def weights_digest(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256, in hex, by which people know the weights of a model."""
    found = hashlib.sha256()
    add_to_hash(found, arrays)
    return found.hexdigest()


def distance(arrays: Mapping[str, npt.NDArray[Any]], others: Mapping[str, npt.NDArray[Any]]) -> float:
    """Return the Euclidean distance between named arrays, all of them taken as one vector."""
    parts = (arrays[name].astype(np.float64) - other for name, other in others.items())
    return float(np.sqrt(sum(float(np.sum(np.square(part))) for part in parts)))


def difference(arrays: Mapping[str, npt.NDArray[Any]], expected: Forms) -> str | None:
    """Say how arrays differ from their agreed forms; None if they do not.

    The first difference counts: names in alphabetical order, then shapes, then types. So the same arrays always
    give the same words.
    """
    for name in sorted(expected.keys() ^ arrays.keys()):
        return f"lacks {name!r}" if name in expected else f"has an unexpected {name!r}"
    for name, (shape, dtype) in sorted(expected.items()):
        if arrays[name].shape != shape:
            return f"has {name!r} of shape {arrays[name].shape}, not {shape}"
        if arrays[name].dtype != dtype:
            return f"has {name!r} of type {arrays[name].dtype}, not {dtype}"
    return None
