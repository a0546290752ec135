"""Values by name of which only a few are in memory, the others in a file that goes with the process."""

import pickle
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Shelf(Mapping[str, V], Generic[V]):
    """A mapping from names to values that can be pickled.

    Args:
        held: how many of them stay in memory.
    """

    def __init__(self, held: int):
        self._held = held
        self._values: dict[str, V] = {}
        self._places: dict[str, int] = {}
        self._file: Any = None

    def add(self, name: str, value: V) -> None:
        """Put a value under a new name."""
        if name in self:
            raise KeyError(name)
        if len(self._values) < self._held:
            self._values[name] = value
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it has no name, and is closed with this object
        self._places[name] = self._file.seek(0, 2)
        pickle.dump(value, self._file, protocol=5)

    def __getitem__(self, name: str) -> V:
        if name in self._values:
            return self._values[name]
        self._file.seek(self._places[name])
        value: V = pickle.load(self._file)
        return value

    def __iter__(self) -> Iterator[str]:
        yield from self._values
        yield from self._places

    def __len__(self) -> int:
        return len(self._values) + len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._places
