"""Weighted sums of models, near the speed of the memory."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_SMALL = 8192  # values; an operation on fewer costs about as much as on none


class Sums:
    """Weighted sums of named arrays, by groups, and of plain numbers.

    In the precision of the arrays, which is float32: a mean of 100 replies is then exact to about 1e-6 of its
    value, far below what a step of training changes. In float64 it would take more than twice the time. Weights
    count relative to the first of a group, so that the mean of one reply is that reply, bit for bit.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self._first_weights: dict[str, float] = {}
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        self._totals: dict[str, list[Tensor]] = {}
        self._waiting: dict[str, list[tuple[list[npt.NDArray[Any]], float]]] = {}

    def add(self, group: str, arrays: Mapping[str, npt.NDArray[Any]], weight: float) -> None:
        """Note ``weight`` times each array for the group's sums; the names and shapes are always the same."""
        if group not in self._shapes:
            self._first_weights[group] = weight
            self._shapes[group] = {name: array.shape for name, array in arrays.items()}
            self._totals[group] = [torch.zeros_like(torch.from_numpy(value)) for value in vectors(arrays.values())]
        values = vectors([arrays[name] for name in self._shapes[group]])
        self._waiting.setdefault(group, []).append((values, weight / self._first_weights[group]))

    def flush(self) -> None:
        """Add what was noted, and let go of it.

        Sum by sum, so that a sum stays in the processor's cache while many replies are added to it.
        """
        for group, waiting in self._waiting.items():
            for position, total in enumerate(self._totals[group]):
                for values, weight in waiting:
                    total.add_(torch.from_numpy(values[position]), alpha=weight)
        self._waiting = {}

    def add_number(self, name: str, value: float) -> None:
        """Add to a plain sum."""
        self.numbers[name] = self.numbers.get(name, 0.0) + value

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that something was added to."""
        return tuple(self._shapes)

    def total(self, group: str) -> dict[str, npt.NDArray[np.float64]]:
        """Return a copy of the group's sums."""
        self.flush()
        weight = self._first_weights[group]
        return _named([(value.double() * weight).numpy() for value in self._totals[group]], self._shapes[group])

    def mean(self, group: str, total: float) -> dict[str, npt.NDArray[Any]]:
        """Return the group's sums divided by ``total``, in the memory of the sums: this ends the group."""
        self.flush()
        relative = total / self._first_weights.pop(group)
        means = [value.div_(relative).numpy() for value in self._totals.pop(group)]
        return _named(means, self._shapes.pop(group))


def vectors(arrays: Collection[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return all values as few vectors: large arrays as they are, the small ones as one.

    A network has hundreds of small arrays, most of them BatchNorm's, and calling an operation on each of them
    takes as long as reading the rest of the network.
    """
    large = [array.ravel() for array in arrays if array.size >= _SMALL]
    small = [array.ravel() for array in arrays if array.size < _SMALL]
    return [*large, np.concatenate(small)] if small else large


def _named(values: list[npt.NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, npt.NDArray[Any]]:
    """Undo :func:`vectors`."""
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    large = [name for name, size in sizes.items() if size >= _SMALL]
    small = [name for name, size in sizes.items() if size < _SMALL]
    flat = dict(zip(large, values[: len(large)], strict=True))
    if small:
        ends = np.cumsum([sizes[name] for name in small])[:-1]
        flat |= dict(zip(small, np.split(values[-1], ends), strict=True))
    return {name: flat[name].reshape(shape) for name, shape in shapes.items()}
