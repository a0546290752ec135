"""Decoded images on disk: decoded once, then mapped into memory by every process that needs them.

An entry is a folder with all images of one dataset, one after the other in ``pixels``, and an ``index`` of their
shapes. Its name is a hash of what went in (path, size and modification time of every file) and of how images are
prepared, so a changed file makes a new entry. The least recently used entries go when the cache grows too large.
"""

import errno
import hashlib
import json
import logging
import math
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fedmr_med.config import PreparationConfig
from fedmr_med.data.images import UnreadableImageError, decode
from fedmr_med.errors import DataError
from fedmr_med.files import lock_shared, locked
from fedmr_med.process import available_cores

CACHE_VARIABLE = "FEDMR_MED_CACHE"
DEFAULT_LIMIT = 20 * 10**9  # bytes

_VERSION = 3  # to be raised when decoding changes
_PIXELS, _INDEX = "pixels", "index.json"
_DAY_NS = 24 * 3600 * 10**9
_AT_ONCE = 256  # images decoded before they are written: bounds the memory in use

_log = logging.getLogger(__name__)


class DecodedImages:
    """The decoded images of one entry, mapped into memory. Pickled as its path, so that workers map it themselves.

    Attributes:
        errors: for each image None, or why it could not be decoded.
        digests: for each image a hash of its pixels, "" where there are none.
    """

    def __init__(self, entry: Path) -> None:
        """Open an entry.

        Raises:
            OSError, ValueError: it is not there or damaged.
        """
        self._entry = entry
        index = _read_index(entry / _INDEX)
        self.errors: list[str | None] = index["errors"]
        self.digests: list[str] = index["digests"]
        self._shapes: list[tuple[int, int]] = [(height, width) for height, width in index["shapes"]]
        ends = np.cumsum([3 * height * width for height, width in self._shapes], dtype=np.int64)
        self._ends: list[int] = ends.tolist()
        self._file = (entry / _PIXELS).open("rb")
        weakref.finalize(self, self._file.close)
        # Held as long as this object lives: the cache does not remove an entry in use.
        lock_shared(self._file)
        size = os.fstat(self._file.fileno()).st_size
        if size != (self._ends[-1] if self._ends else 0):
            raise ValueError(f"{entry / _PIXELS} has {size} bytes")
        self._pixels: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        if size:
            self._pixels = np.asarray(np.memmap(self._file, dtype=np.uint8, mode="r"))

    def __len__(self) -> int:
        return len(self._shapes)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        """Return image ``index``, (height, width, 3), read-only; (0, 0, 3) if it could not be decoded."""
        height, width = self._shapes[index]
        end = self._ends[index]
        return self._pixels[end - 3 * height * width : end].reshape(height, width, 3)

    def __reduce__(self) -> tuple[type["DecodedImages"], tuple[Path]]:
        return DecodedImages, (self._entry,)


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

    Several processes may ask for the same images at once: one decodes them, the others wait.

    Args:
        root: folder that the names are relative to.
        preparation: see :func:`fedmr_med.data.images.decode`.
        folder: the cache; None uses ``FEDMR_MED_CACHE``, then ``~/.cache/fedmr_med``.
        limit: bytes the cache may hold before the least recently used entries go.

    Raises:
        DataError: the cache cannot be written.
    """
    folder = folder or default_folder()
    try:
        # Only the owner may look: these are patients' images.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = folder / _key(root, names, edge, preparation)
        with locked(_lock_file(entry), patience=math.inf):
            images = _open(entry)
            if images is None:
                _build(entry, [root / name for name in names], edge, preparation)
                images = DecodedImages(entry)
            os.utime(entry)
        with locked(folder / "cache.lock", patience=math.inf):
            _shrink(folder, limit, keep=entry)
    except OSError as e:
        raise DataError(
            f"The image cache {folder} cannot be used ({e.strerror or e}); set cache in site.yaml.",
            code="file.not-writable",
            key="cache",
        ) from e
    return images


def default_folder() -> Path:
    """Return the cache folder of this user."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "fedmr_med"


def _key(root: Path, names: Sequence[str], edge: int, preparation: PreparationConfig | None) -> str:
    """Return a hash of the files and of the preparation."""
    how = () if preparation is None else (preparation.model_dump_json(),)
    digest = hashlib.blake2b(repr((_VERSION, edge, *how)).encode(), digest_size=16)
    for name in names:
        path = root / name
        try:
            stat = path.stat()
            state: tuple[Any, ...] = (stat.st_size, stat.st_mtime_ns, os.access(path, os.R_OK))
        except OSError as e:
            state = (errno.errorcode.get(e.errno or 0, "?"),)
        digest.update(repr((name, *state)).encode())
    return digest.hexdigest()


def _open(entry: Path) -> DecodedImages | None:
    """Open an entry, or return None where it has to be made: not there yet, or damaged."""
    if not entry.exists():
        return None
    try:
        return DecodedImages(entry)
    except (OSError, ValueError, KeyError, TypeError) as e:
        _log.warning("Decoding the images again: the cache entry %s is damaged (%s).", entry, e)
        return None


def _build(entry: Path, paths: Sequence[Path], edge: int, preparation: PreparationConfig | None) -> None:
    """Decode all images into a new folder and put it in the place of ``entry``."""
    _log.info("Decoding %d images, once, into %s.", len(paths), entry)
    for left_over in entry.parent.glob(f".{entry.name}.*"):
        shutil.rmtree(left_over)  # of a process that was killed: this one holds the lock
    building = Path(tempfile.mkdtemp(dir=entry.parent, prefix=f".{entry.name}."))
    try:
        with (building / _PIXELS).open("wb") as stream:
            index = _decode_all(paths, edge, preparation, stream)
            stream.flush()
            os.fsync(stream.fileno())
        _write_index(building / _INDEX, index)
        if entry.exists():
            # Processes that have the damaged entry open keep their files.
            shutil.rmtree(entry)
        building.rename(entry)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _decode_all(
    paths: Sequence[Path], edge: int, preparation: PreparationConfig | None, stream: BinaryIO
) -> dict[str, list[Any]]:
    """Decode images in parallel threads and write their pixels in order; return shapes, hashes, reasons of failure."""

    def attempt(path: Path) -> npt.NDArray[np.uint8] | str:
        try:
            return decode(path, edge, preparation)
        except UnreadableImageError as e:
            return str(e)

    shapes: list[tuple[int, int]] = []
    errors: list[str | None] = []
    digests: list[str] = []
    with ThreadPoolExecutor(available_cores()) as pool:
        for start in range(0, len(paths), _AT_ONCE):
            for outcome in pool.map(attempt, paths[start : start + _AT_ONCE]):
                if isinstance(outcome, str):
                    shapes.append((0, 0))
                    errors.append(outcome)
                    digests.append("")
                else:
                    pixels = outcome.tobytes()
                    shapes.append((outcome.shape[0], outcome.shape[1]))
                    errors.append(None)
                    digests.append(hashlib.blake2b(pixels, digest_size=8).hexdigest())
                    stream.write(pixels)
    return {"shapes": shapes, "errors": errors, "digests": digests}


def _write_index(path: Path, index: dict[str, Any]) -> None:
    body = json.dumps(index)
    path.write_text(_checksum(body) + "\n" + body, encoding="utf-8")


def _read_index(path: Path) -> dict[str, Any]:
    checksum, _, body = path.read_text(encoding="utf-8").partition("\n")
    if checksum != _checksum(body):
        raise ValueError(f"{path} does not have its checksum")
    index: dict[str, Any] = json.loads(body)
    return index


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def clean(folder: Path | None = None, *, older_than_days: float = 0) -> tuple[int, int]:
    """Remove the entries that nobody has open and that were not used for some days; return how many, and their bytes.

    Args:
        folder: the cache; None uses the user's.
        older_than_days: days since an entry was last used; 0 takes every entry.
    """
    before = time.time_ns() - int(older_than_days * _DAY_NS)
    old = [(size, entry) for used, size, entry in _entries(folder or default_folder()) if used <= before]
    gone = [size for size, entry in old if _remove_if_idle(entry)]
    return len(gone), sum(gone)


def _shrink(folder: Path, limit: int, *, keep: Path) -> None:
    """Remove the least recently used entries that nobody has open, until the cache fits its limit."""
    entries = sorted(_entries(folder))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in entries:
        if total <= limit:
            return
        if entry != keep and _remove_if_idle(entry):
            total -= size
            _log.info("Removed %s from the image cache to make room.", entry)


def _entries(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield the time of last use, the size in bytes and the folder of each entry."""
    for pixels in folder.glob(f"[!.]*/{_PIXELS}"):
        try:
            yield pixels.parent.stat().st_mtime_ns, pixels.stat().st_size, pixels.parent
        except FileNotFoundError:
            continue  # another process is replacing a damaged entry


def _remove_if_idle(entry: Path) -> bool:
    """Remove an entry unless a process is opening it or has it open; return whether it is gone."""
    try:
        with locked(_lock_file(entry), patience=0), locked(entry / _PIXELS, patience=0):
            shutil.rmtree(entry)
    except TimeoutError:
        return False
    return True


def _lock_file(entry: Path) -> Path:
    """Return the file whose lock a process holds while it opens or makes an entry."""
    return entry.with_name(f"{entry.name}.lock")
