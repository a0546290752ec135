"""Writing files so that a crash or a full disk never leaves half of one, and one writer at a time."""

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

# The umask under which files with keys, policies and what left a site are made.
PRIVATE = 0o077


@contextmanager
def atomic_writer(path: Path, *, previous: Path | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path``; on success sync it and rename it over ``path``.

    If the body raises (a full disk, for example), the temporary file is removed and the old ``path`` stays. The body
    can read back what it wrote.

    ``previous`` keeps what ``path`` was before; ``path`` itself is there at every moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if previous is not None and path.exists():
            _keep(path, previous)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically, as UTF-8."""
    with atomic_writer(path) as stream:
        stream.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` to ``path`` atomically, as JSON that people can read."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def check_writable(folder: Path) -> None:
    """See that files can be written to a folder, before the work whose result it is to hold; nothing stays behind.

    Where it does not exist yet, the nearest folder above it counts.

    Raises:
        OSError: they cannot.
    """
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest) as stream:
            stream.write(b"x")
    except OSError as e:
        raise type(e)(e.errno, e.strerror, str(folder)) from e  # not the name of the temporary file


def state_folder() -> Path:
    """Return the folder of this account for what outlives kits and runs: ``$XDG_STATE_HOME/fedmr_med``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fedmr_med"


@contextmanager
def private_files() -> Iterator[None]:
    """Let only the owner read what is written during the body."""
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def own_turn(lock: Path) -> Iterator[None]:
    """Let one process at a time work on files that only their owner may read."""
    with private_files(), locked(lock, patience=60):
        yield


@contextmanager
def locked(*paths: Path, patience: float, when: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Hold one of the lock files ``paths`` during the body. The lock goes with the process, however that ends.

    Args:
        paths: lock files in the same folder; made if they are not there, and never removed.
        patience: seconds to wait for other processes that hold all of them.
        when: asked before each attempt; as long as it says no, others go first.

    Raises:
        TimeoutError: none of them let go of one.
    """
    with ExitStack() as stack:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        streams = [stack.enter_context(path.open("ab")) for path in paths]
        give_up = time.monotonic() + patience
        while not (when() and any(_try_lock(stream.fileno()) for stream in streams)):
            if time.monotonic() > give_up:
                raise TimeoutError(f"{paths[0]} is locked by another process")
            time.sleep(0.05)
        yield


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock file ``path``, which exists."""
    with path.open("ab") as stream:
        return not _try_lock(stream.fileno())


def lock_shared(stream: BinaryIO) -> None:
    """Share the lock of an open file with other readers, until it is closed; :func:`locked` waits for all of them."""
    fcntl.flock(stream, fcntl.LOCK_SH)


def _keep(path: Path, previous: Path) -> None:
    """Make ``previous`` what ``path`` is now, without a moment in which either is missing or half there."""
    link = previous.with_name(f".{previous.name}.tmp")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except OSError:
        shutil.copy2(path, link)  # a file system without hard links
    link.replace(previous)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make a rename durable: the directory entry has to be synced as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
