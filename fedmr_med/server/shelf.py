"""Values by name of which only so many bytes are in memory, the others in a file that goes with the process."""

import mmap
import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import IO, Generic, TypeVar

V = TypeVar("V")

MEMORY = 256 * 2**20
"""Bytes in memory: 13 replies of an EfficientNet-b0."""

_WRITTEN = 1 << 20  # bytes at a time: Linux can take several times as long for one long write to a new file
_LINE = 64  # arrays in the file start at multiples of it, as they do in memory


class Shelf(Mapping[str, V], Generic[V]):
    """A mapping from names to values that can be pickled; it iterates in the order of the names.

    Arrays in the file are mapped, not read: a value that was looked up takes memory while it is in use.

    Args:
        memory: bytes of values that stay in memory.
    """

    def __init__(self, memory: int = MEMORY):
        self._free = memory
        self._values: dict[str, V] = {}
        self._places: dict[str, tuple[int, list[slice]]] = {}

    def add(self, name: str, value: V) -> None:
        """Put a value under a new name.

        Raises:
            OSError: the folder for temporary files (``TMPDIR``) is full.
        """
        if name in self:
            raise KeyError(name)
        arrays: list[pickle.PickleBuffer] = []
        content = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
        parts = [memoryview(content), *(array.raw() for array in arrays)]
        size = sum(part.nbytes for part in parts)
        if size <= self._free:
            self._free -= size
            self._values[name] = value
        else:
            self._places[name] = self._write(parts)

    def remove(self, name: str) -> None:
        """Take a value away; its place in the file stays."""
        del (self._values if name in self._values else self._places)[name]

    @cached_property
    def _file(self) -> IO[bytes]:
        return tempfile.TemporaryFile()  # it has no name, and is closed with this object

    def _write(self, parts: Sequence[memoryview]) -> tuple[int, list[slice]]:
        """Append to the file; return where in it, and where the parts are from there."""
        end = self._file.seek(0, os.SEEK_END)
        start = self._file.seek(_next(end, mmap.ALLOCATIONGRANULARITY))
        places, end = [], 0
        for part in parts:
            first = _next(end, _LINE)
            self._file.write(bytes(first - end))
            for position in range(0, part.nbytes, _WRITTEN):
                self._file.write(part[position : position + _WRITTEN])
            end = first + part.nbytes
            places.append(slice(first, end))
        self._file.flush()
        return start, places

    def __getitem__(self, name: str) -> V:
        if name in self._values:
            return self._values[name]
        start, places = self._places[name]
        # What is done to the arrays does not reach the file.
        mapped = mmap.mmap(self._file.fileno(), places[-1].stop, access=mmap.ACCESS_COPY, offset=start)
        content, *arrays = (memoryview(mapped)[place] for place in places)
        value: V = pickle.loads(content, buffers=arrays)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(sorted([*self._values, *self._places]))

    def __len__(self) -> int:
        return len(self._values) + len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._places


def _next(number: int, step: int) -> int:
    """Return the next multiple of ``step``."""
    return number + -number % step
