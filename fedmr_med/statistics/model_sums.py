"""The models of a round as sums: what a method's server half adds up, and the buffers of all methods alike.

The server adds replies. Where models are summed securely (``federation.secure: all``), each site makes the sums of its
own reply alone, their numbers add up over the sites, and the server goes on from the total as if it had added them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedmr_med.arrays import Arrays, Forms
from fedmr_med.errors import WireError
from fedmr_med.statistics.fields import BITS, Field, Values

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


BUFFERS, COUNTERS, NUMBERS = "buffers", "counters", "numbers"
IMAGES, SITES = "images", "sites"
_SEPARATOR = "/"


@dataclass(frozen=True)
class Contribution:
    """A site's reply as the server half sees it, already validated.

    Attributes:
        samples: number of its training images.
        model: its weights and buffers by name.
        payload: what the client half added.
    """

    site: str
    samples: int
    model: Arrays
    payload: Arrays = field(default_factory=dict)


class ServerHalf(Protocol):
    """What a method's server half does with replies, see :class:`fedmr_med.methods.base.ServerHalf`."""

    def payload_forms(self, parameters: Arrays) -> Forms:
        """Return shape and type of what the client half adds to a reply."""

    def add(self, sums: Sums, contribution: Contribution, parameters: Arrays) -> None:
        """Add a reply."""

    def finish(self, sums: Sums, parameters: Arrays, state: Arrays, num_sites: int) -> tuple[Arrays, Arrays]:
        """Return the new parameters and the new server state."""


class ModelSums:
    """Adds up models, given the one that the round started from.

    Args:
        model: weights and buffers by name.
        parameters: the names in ``model`` that are trained.
        buffers: ``first`` keeps those of the first reply; everything else is their mean.
    """

    def __init__(self, server: ServerHalf, model: Arrays, parameters: frozenset[str], *, buffers: str = "average"):
        self.server = server
        self.parameters = {name: array for name, array in model.items() if name in parameters}
        self._model = model
        self._buffers = buffers
        self._sums = Sums()
        self._counters: Arrays = {}
        self._first_buffers: Arrays | None = None

    def add(self, *contributions: Contribution) -> None:
        """Add validated replies; many at once take less time than one after the other."""
        for contribution in contributions:
            self.server.add(self._sums, contribution, self.parameters)
            self._add_buffers(contribution)
            self._sums.add_number(IMAGES, contribution.samples)
            self._sums.add_number(SITES, 1)
        self._sums.flush()

    def finish(self, method_state: Arrays, num_sites: int) -> tuple[Arrays, Arrays, Arrays]:
        """Return the new parameters, the method's new server state, and the new buffers.

        Args:
            method_state: the server state that the round started from.
            num_sites: sites of the federation, whether or not they took part.
        """
        made, state = self.server.finish(self._sums, self.parameters, method_state, num_sites)
        if self._buffers == "first":
            return made, state, self._first_buffers or {}
        return made, state, {**self._sums.mean(BUFFERS, self._sums.numbers[IMAGES]), **self._counters}

    def values(self) -> dict[str, npt.NDArray[Any]]:
        """Return all sums by name, as they add up over sites: float64, and whole numbers for counters."""
        totals = {group: self._sums.total(group) for group in self._sums.groups}
        numbers = {name: np.asarray(value, dtype=np.float64) for name, value in self._sums.numbers.items()}
        parts = {**totals, NUMBERS: numbers, COUNTERS: self._counters}
        return {
            _SEPARATOR.join((part, name)): array for part, arrays in parts.items() for name, array in arrays.items()
        }

    def take(self, values: Values, *, sites: int, most_images: int) -> None:
        """Go on from the total of several sites' :meth:`values`, as if their replies had been added.

        Of the counters, which cannot have a highest value in a total, the mean is taken.

        Args:
            sites: how many sites it is of.
            most_images: training images that a site may have.

        Raises:
            WireError: no replies add up to it.
        """
        parts: dict[str, Arrays] = {BUFFERS: {}}  # a network without BatchNorm has none
        for name, array in values.items():
            part, _, rest = name.partition(_SEPARATOR)
            parts.setdefault(part, {})[rest] = np.asarray(array)
        numbers = {name: float(value) for name, value in parts.pop(NUMBERS).items()}
        if numbers[SITES] != sites or not sites <= numbers[IMAGES] <= sites * most_images:
            counted = f"{numbers[IMAGES]:.6g} training images of {numbers[SITES]:.6g} sites"
            raise WireError(f"the total of {sites} sites counts {counted}", code="wire.counts")
        self._counters = {name: np.rint(array / sites) for name, array in parts.pop(COUNTERS, {}).items()}
        for group, arrays in parts.items():
            self._sums.add(group, {name: array.astype(np.float32) for name, array in arrays.items()}, 1)
        self._sums.numbers = numbers

    def _add_buffers(self, contribution: Contribution) -> None:
        buffers = {name: contribution.model[name] for name in self._model if name not in self.parameters}
        if self._first_buffers is None:
            self._first_buffers = buffers
        floats = {name: array for name, array in buffers.items() if array.dtype.kind == "f"}
        self._sums.add(BUFFERS, floats, contribution.samples)
        for name in buffers.keys() - floats.keys():
            highest = np.maximum(self._counters.get(name, buffers[name]), buffers[name])
            self._counters[name] = np.asarray(highest)  # numpy makes a scalar of an array without dimensions


def sum_fields(server: ServerHalf, model: Arrays, parameters: frozenset[str]) -> dict[str, Field]:
    """Return shape and digits of what :meth:`ModelSums.values` gives; one made-up reply shows it for all."""
    sums = ModelSums(server, model, parameters)
    forms = sums.server.payload_forms(sums.parameters)
    payload = {name: np.ones(shape, dtype) for name, (shape, dtype) in forms.items()}
    sums.add(Contribution("", 1, model, payload))
    return {name: Field(array.shape, _digits(name)) for name, array in sums.values().items()}


def _digits(name: str) -> int:
    """Return the binary digits after the point: none for counters, few for numbers, which can be large."""
    return {COUNTERS: 0, NUMBERS: 8}.get(name.partition(_SEPARATOR)[0], BITS)
