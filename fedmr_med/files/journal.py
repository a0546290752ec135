"""Journals: files to which lines are only added, each with the hash of the line before it.

A line that is changed, removed or put in between breaks the chain at the line after it. Cutting off the end leaves a
sound but shorter chain, so whoever wants to notice that writes down the head: the hash of the last line.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fedmr_med.errors import ConfigError
from fedmr_med.files import locked

START = "0" * 64
_PREVIOUS = "previous"
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Journal:
    """What a journal says.

    Attributes:
        entries: the lines that can be read, first to last, without the hashes.
        problems: what is wrong with the chain; empty if every line is as it was written.
        torn: numbers of lines that were not written to their end, as a power cut leaves them.
        head: hash of the last line.
    """

    entries: tuple[dict[str, Any], ...]
    problems: tuple[str, ...]
    torn: tuple[int, ...]
    head: str


def append(path: Path, entry: dict[str, Any]) -> None:
    """Add a line and sync it to the disk; processes that do so at once take turns.

    Raises:
        OSError: it cannot be written.
        TimeoutError: another process does not let go of the journal.
    """
    path.touch(mode=0o600)
    with locked(path, patience=30), path.open("r+b") as stream:
        last, torn = _last_line(stream)
        line = json.dumps(entry | {_PREVIOUS: _hash(last) if last else START})
        stream.seek(0, os.SEEK_END)
        stream.write((b"\n" if torn else b"") + line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read(path: Path, *, known_head: str | None = None) -> Journal:
    """Read a journal and check its chain; a file that does not exist is an empty one.

    Args:
        path: the file.
        known_head: a head that was written down earlier; the journal must still hold that line.

    Raises:
        ConfigError: the file cannot be read.
    """
    entries: list[dict[str, Any]] = []
    problems: list[str] = []
    torn: list[int] = []
    head, heads = START, set()
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e}.", code="file.unreadable") from e
    for number, line in enumerate(lines, start=1):
        entry = _parsed(line)
        if entry is None:
            torn.append(number)
        elif entry.pop(_PREVIOUS, None) != head:
            problems.append(f"line {number} does not follow the line before it: one of them was changed or removed")
        if entry is not None:
            entries.append(entry)
        head = _hash(line)
        heads.add(head)
    if known_head is not None and known_head not in heads:
        problems.append(f"the journal does not hold the line {known_head}: its end was cut off")
    return Journal(tuple(entries), tuple(problems), tuple(torn), head)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _last_line(stream: BinaryIO) -> tuple[bytes, bool]:
    """Return the last line (empty if there is none), and whether its end is missing."""
    position, tail = stream.seek(0, os.SEEK_END), b""
    while position and b"\n" not in tail[:-1]:
        step = min(_BLOCK, position)
        position -= step
        stream.seek(position)
        tail = stream.read(step) + tail
    return tail.rstrip(b"\n").rpartition(b"\n")[2], bool(tail) and not tail.endswith(b"\n")


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
