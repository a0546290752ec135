"""Journals: files to which lines are only added, each with the hash of the line before it.

A line that is changed, removed or put in between breaks the chain at the line after it. Cutting off the end leaves a
sound but shorter chain, so whoever wants to notice that writes down the head: the hash of the last line.

A process that is killed while it writes leaves a line without its newline, which nobody else can tell from a line that
was cut by hand. Such a line is torn while it is the last one; whoever adds the next says in it that it was. A line that
has its newline was written to its end, so one that cannot be read was changed.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fedmr_med.errors import ConfigError, PolicyError
from fedmr_med.files import locked

START = "0" * 64
_PREVIOUS, _AFTER_TORN = "previous", "after_torn"
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


def append(path: Path, *entries: dict[str, Any]) -> None:
    """Add a line for each entry and sync them to the disk; processes that do so at once take turns.

    Raises:
        OSError: they cannot be written.
        TimeoutError: another process does not let go of the journal.
    """
    path.touch(mode=0o600)
    with locked(path, patience=30), path.open("r+b") as stream:
        last, torn = _last_line(stream)
        start, mark = (b"\n", {_AFTER_TORN: True}) if torn else (b"", {})
        stream.seek(0, os.SEEK_END)
        for entry in entries:
            last = json.dumps(entry | {_PREVIOUS: _hash(last) if last else START} | mark).encode()
            stream.write(start + last + b"\n")
            start, mark = b"", {}
        stream.flush()
        os.fsync(stream.fileno())


def read(path: Path, *, known_head: str | None = None) -> Journal:
    """Read a journal and check its chain; a file that does not exist is an empty one.

    ``known_head`` was written down earlier; the journal must still hold that line.

    Raises:
        ConfigError: the file cannot be read.
    """
    entries: list[dict[str, Any]] = []
    problems: list[str] = []
    torn: list[int] = []
    head, heads = START, set()
    try:
        *lines, rest = path.read_bytes().split(b"\n") if path.exists() else [b""]
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e}.", code="file.unreadable") from e
    unread: list[int] = []
    for number, line in enumerate([*lines, rest] if rest else lines, start=1):
        entry = _parsed(line)
        if entry is None:
            unread.append(number)
        else:
            after_torn = entry.pop(_AFTER_TORN, None) is True
            if entry.pop(_PREVIOUS, None) != head:
                problems.append(f"line {number} does not follow the line before it: one of them was changed or removed")
            elif after_torn and number - 1 in unread:
                torn.append(number - 1)
            entries.append(entry)
        head = _hash(line)
        heads.add(head)
    if rest and len(lines) + 1 in unread:
        torn.append(len(lines) + 1)
    problems += [f"line {number} cannot be read: it was changed" for number in unread if number not in torn]
    if known_head is not None and known_head not in heads:
        problems.append(f"the journal does not hold the line {known_head}: its end was cut off")
    return Journal(tuple(entries), tuple(problems), tuple(torn), head)


def sound(path: Path, otherwise: str, *, known_head: str | None = None) -> Journal:
    """Return a journal of which every line is as it was written.

    Raises:
        PolicyError: it was changed; the message says what is to be done ``otherwise``.
    """
    found = read(path, known_head=known_head)
    if found.problems:
        raise PolicyError(f"{path} was changed ({found.problems[0]}); {otherwise}.", code="record.changed")
    return found


def trusted(path: Path, otherwise: str) -> tuple[dict[str, Any], ...]:
    """Return the entries of a journal on which a site's decisions rest.

    Raises:
        PolicyError: as :func:`sound`.
    """
    return sound(path, otherwise).entries


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
