"""How far the models of a round moved, and how far apart, in time that grows with their number.

The mean of the others of a site is the sum of all without its own part. So lengths, sum and distances take one pass
over the models each, where a comparison of all pairs would take as many passes as there are models. Directions are
compared by sketches of a few thousand numbers.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedmr_med.arrays import Arrays
from fedmr_med.seeding import numpy_generator
from fedmr_med.statistics.model_sums import vectors

_PIECE = 1 << 16  # values that are compared at a time; they stay in the processor's cache
SKETCH = 1 << 14
"""Numbers in a sketch; the error of a cosine is about one over their square root."""

Vector = npt.NDArray[np.float32]


class Changes:
    """What models change of the arrays ``names`` of the model they come from; the change of each is one vector."""

    def __init__(self, start: Arrays, names: Collection[str]):
        self._names = sorted(names)
        self._start = self._pieces(start)
        self._sum = [np.zeros(len(piece), np.float32) for piece in self._start]

    def length(self, model: Arrays) -> float:
        """Return the length of a model's change."""
        return _length(self._of(model))

    def add(self, model: Arrays, share: float) -> None:
        """Add a share of a model's change to the sum."""
        for total, change in zip(self._sum, self._of(model), strict=True):
            np.add(total, np.float32(share) * change, out=total)

    def from_others(self, model: Arrays, share: float, others: int) -> float:
        """Return the distance of a model's change from the mean of the others', once the sum has all of them.

        ``share`` is what was added of its change, and ``others`` their number.
        """
        # others * (change - (sum - share * change) / others)
        factor = np.float32(others + share)
        pairs = zip(self._sum, self._of(model), strict=True)
        return _length(factor * change - total for total, change in pairs) / others

    def sketch(self, model: Arrays) -> Vector:
        """Return a random projection (SKETCH,) of a model's change: cosines of two stay the same within a hundredth.

        Every value is added to one of the numbers with a random sign (count sketch, Charikar et al. 2002).
        """
        sketch = np.zeros(SKETCH, np.float32)
        for signs, change in zip(self._signs, self._of(model), strict=True):
            signed = signs * change
            whole = len(signed) // SKETCH * SKETCH
            sketch += signed[:whole].reshape(-1, SKETCH).sum(0)
            sketch[: len(signed) - whole] += signed[whole:]
        return sketch

    @cached_property
    def _signs(self) -> list[npt.NDArray[np.int8]]:
        generator = numpy_generator("sketch")
        return [generator.choice(np.array([-1, 1], np.int8), len(piece)) for piece in self._start]

    def _of(self, model: Arrays) -> Iterator[Vector]:
        for start, end in zip(self._start, self._pieces(model), strict=True):
            yield np.subtract(end, start, dtype=np.float32)

    def _pieces(self, model: Arrays) -> list[npt.NDArray[np.floating]]:
        parts = vectors([model[name] for name in self._names])
        return [part[first : first + _PIECE] for part in parts for first in range(0, len(part), _PIECE)]


def _length(pieces: Iterable[Vector]) -> float:
    """Return the length of a vector in pieces."""
    return float(np.sqrt(sum(float(np.dot(piece, piece)) for piece in pieces)))
