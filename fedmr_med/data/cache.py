"""What a site makes once and keeps on disk: decoded images, and by :mod:`fedmr_med.data.feature_cache` their features.

An entry is one file, mapped into memory by every process that needs it. Its name is a hash of all that it depends on,
so what changed makes a new entry. The least recently used images go when they grow too many.
"""

import errno
import hashlib
import json
import logging
import math
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from fedmr_med.config import PreparationConfig
from fedmr_med.data.images import UnreadableImageError, decode
from fedmr_med.errors import DataError
from fedmr_med.files import atomic_writer, lock_shared, locked
from fedmr_med.process import available_cores

CACHE_VARIABLE = "FEDMR_MED_CACHE"
DEFAULT_LIMIT = 20 * 10**9  # bytes

Kind = Literal["images", "features"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""What an entry can hold, and the suffix of its file."""

_VERSION = 4  # to be raised when decoding changes
_DAY = 24 * 3600
_AT_ONCE = 256  # images decoded before they are written: bounds the memory in use
_LENGTH, _HASH = 8, 16  # bytes at the end of a file of images: of its index

_log = logging.getLogger(__name__)

T = TypeVar("T")


def default_folder() -> Path:
    """Return the cache folder of this user."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "fedmr_med"


def open_entry(
    folder: Path, kind: Kind, made_from: str, read: Callable[[Path], T], write: Callable[[BinaryIO], None]
) -> tuple[Path, T]:
    """Return the file of an entry, and what it holds; it is made if it is not there yet, or damaged.

    Several processes may ask for the same entry at once: one makes it, the others wait.

    Args:
        folder: the cache.
        made_from: all that the entry depends on.
        read: maps a file into memory; raises OSError, ValueError, KeyError, TypeError or EOFError if it is damaged.
        write: makes the content.

    Raises:
        DataError: the cache cannot be written.
    """
    path = folder / f"{hashlib.blake2b(made_from.encode(), digest_size=16).hexdigest()}.{kind}"
    try:
        # Only the owner may look: these are patients' images.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(_lock_file(path), patience=math.inf):
            entry = _undamaged(path, read)
            if entry is None:
                for left_over in folder.glob(f".{path.name}.*"):
                    left_over.unlink()  # of a process that was killed: this one holds the lock
                _log.info("Making %s of %s, once.", kind, path)
                with atomic_writer(path) as stream:
                    write(stream)
                entry = read(path)
            os.utime(path)
    except OSError as e:
        raise DataError(
            f"The cache {folder} cannot be used ({e.strerror or e}); set cache in site.yaml.",
            code="file.not-writable",
            key="cache",
        ) from e
    return path, entry


def _undamaged(path: Path, read: Callable[[Path], T]) -> T | None:
    """Read an entry, or return None where it has to be made: not there yet, or damaged."""
    if not path.exists():
        return None
    try:
        return read(path)
    except (OSError, ValueError, KeyError, TypeError, EOFError) as e:
        _log.warning("Making %s again: it is damaged (%s).", path, e)
        return None


def clean(kind: Kind, folder: Path | None = None, *, older_than_days: float = 0) -> tuple[int, int]:
    """Remove entries that were not used for some days, and images that nobody has open; return how many, and bytes.

    A process that has features open keeps them until it ends.

    Args:
        folder: the cache; None uses the user's.
        older_than_days: days since an entry was last used; 0 takes every entry.
    """
    before = time.time_ns() - int(older_than_days * _DAY * 10**9)
    old = [(size, path) for used, size, path in _entries(kind, folder or default_folder()) if used <= before]
    gone = [size for size, path in old if _remove_if_idle(path)]
    return len(gone), sum(gone)


def _entries(kind: Kind, folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield the time of last use, the size in bytes and the file of each entry."""
    for path in folder.glob(f"[!.]*.{kind}"):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue  # another process has removed it
        yield stat.st_mtime_ns, stat.st_size, path


def _remove_if_idle(path: Path) -> bool:
    """Remove an entry unless a process is opening it or holds it open; return whether it is gone."""
    try:
        with locked(_lock_file(path), patience=0), locked(path, patience=0):
            path.unlink()
    except TimeoutError:
        return False
    return True


def _lock_file(path: Path) -> Path:
    """Return the file whose lock a process holds while it opens or makes an entry."""
    return path.with_suffix(".lock")


class DecodedImages:
    """The decoded images of one entry: their pixels one after the other, then an index with its length and hash.

    Pickled as its path, so that workers map it themselves. As long as it lives, the cache does not remove the entry.

    Attributes:
        errors: for each image None, or why it could not be decoded.
        digests: for each image a hash of its pixels, "" where there are none.
    """

    def __init__(self, path: Path) -> None:
        """Open an entry; raise OSError, ValueError, KeyError or TypeError if it is not there or damaged."""
        self._path = path
        file = path.open("rb")
        weakref.finalize(self, file.close)
        lock_shared(file)
        self._pixels: npt.NDArray[np.uint8] = np.asarray(np.memmap(file, dtype=np.uint8, mode="r"))
        index = _read_index(self._pixels)
        self.errors: list[str | None] = index["errors"]
        self.digests: list[str] = index["digests"]
        self._shapes: list[tuple[int, int]] = [(height, width) for height, width in index["shapes"]]
        self._ends: list[int] = np.cumsum([3 * height * width for height, width in self._shapes], dtype=int).tolist()

    def __len__(self) -> int:
        return len(self._shapes)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        """Return image ``index``, (height, width, 3), read-only; (0, 0, 3) if it could not be decoded."""
        height, width = self._shapes[index]
        end = self._ends[index]
        return self._pixels[end - 3 * height * width : end].reshape(height, width, 3)

    def __reduce__(self) -> tuple[type["DecodedImages"], tuple[Path]]:
        return DecodedImages, (self._path,)


def open_images(
    root: Path,
    names: Sequence[str],
    *,
    edge: int,
    preparation: PreparationConfig | None = None,
    folder: Path | None = None,
    limit: int = DEFAULT_LIMIT,
) -> DecodedImages:
    """Return the images ``root / name``, decoded to a shorter edge of ``edge`` pixels, from the cache or into it.

    Args:
        root: folder that the names are relative to.
        preparation: see :func:`fedmr_med.data.images.decode`.
        folder: the cache; None uses the user's.
        limit: bytes of images that the cache may hold before the least recently used entries go.

    Raises:
        DataError: the cache cannot be written.
    """
    folder = folder or default_folder()
    how = () if preparation is None else (preparation.model_dump_json(),)
    made_from = repr((_VERSION, edge, *how, *((name, *_state(root / name)) for name in names)))
    paths = [root / name for name in names]
    decode_one = partial(_decoded, edge=edge, preparation=preparation)
    path, images = open_entry(folder, "images", made_from, DecodedImages, partial(_decode_all, paths, decode_one))
    _shrink(folder, limit, keep=path)
    return images


def _state(path: Path) -> tuple[Any, ...]:
    """Return size and modification time of a file and whether it can be read, or why there are none."""
    try:
        stat = path.stat()
    except OSError as e:
        return (errno.errorcode.get(e.errno or 0, "?"),)
    return stat.st_size, stat.st_mtime_ns, os.access(path, os.R_OK)


def _decoded(path: Path, *, edge: int, preparation: PreparationConfig | None) -> npt.NDArray[np.uint8] | str:
    """Return an image, or why it cannot be decoded."""
    try:
        return decode(path, edge, preparation)
    except UnreadableImageError as e:
        return str(e)


def _decode_all(
    paths: Sequence[Path], decode_one: Callable[[Path], npt.NDArray[np.uint8] | str], stream: BinaryIO
) -> None:
    """Decode images in parallel threads and write their pixels in order, then the index of :class:`DecodedImages`."""
    index: dict[str, list[Any]] = {"shapes": [], "errors": [], "digests": []}
    with ThreadPoolExecutor(available_cores()) as pool:
        for start in range(0, len(paths), _AT_ONCE):
            for image in pool.map(decode_one, paths[start : start + _AT_ONCE]):
                pixels = b"" if isinstance(image, str) else image.tobytes()
                stream.write(pixels)
                index["shapes"].append((0, 0) if isinstance(image, str) else image.shape[:2])
                index["errors"].append(image if isinstance(image, str) else None)
                index["digests"].append(hashlib.blake2b(pixels, digest_size=8).hexdigest() if pixels else "")
    text = json.dumps(index).encode()
    stream.write(text + _hash(text) + len(text).to_bytes(_LENGTH))


def _read_index(content: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """Return the index at the end of a file; raise ValueError if it does not have its hash."""
    end = len(content) - _HASH - _LENGTH
    length = int.from_bytes(content[end + _HASH :].tobytes())
    text = content[max(0, end - length) : end].tobytes()
    if _hash(text) != content[end : end + _HASH].tobytes():
        raise ValueError("its index does not have its hash")
    index: dict[str, Any] = json.loads(text)
    return index


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH).digest()


def _shrink(folder: Path, limit: int, *, keep: Path) -> None:
    """Remove the least recently used images that nobody has open, until they fit the limit."""
    with locked(folder / "cache.lock", patience=math.inf):
        entries = sorted(_entries("images", folder))
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total > limit and path != keep and _remove_if_idle(path):
                total -= size
                _log.info("Removed %s from the cache to make room.", path)
