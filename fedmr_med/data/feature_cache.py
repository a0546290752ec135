"""Features of a frozen backbone on disk: made once per site, then mapped into memory by every process that needs them.

An entry is one array, ``<key>.npy``. Its key is a hash of all that the features depend on, the weights and the images
among them, so that other weights, another image size or another picture makes another entry. Features tell of patients
as their images do: only the owner may read them, and they stay in the site's own cache folder, beside its decoded
images. Entries that were not used for a while go by themselves.
"""

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.data.base import Fold
from fedmr_med.data.cache import DecodedImages, default_folder
from fedmr_med.errors import DataError
from fedmr_med.files import atomic_writer, locked

KEEP_DAYS = 30
"""Entries that nobody used for so many days are removed when another one is made."""

_FOLDER = "features"
_VERSION = 1  # to be raised when features are made in another way
_DAY = 24 * 3600

_log = logging.getLogger(__name__)

Features = npt.NDArray[np.float32]


def open_features(
    made_from: Mapping[str, Any], make: Callable[[], Features], *, shape: tuple[int, int], folder: Path | None = None
) -> Features:
    """Return features from the cache, or make them and put them there.

    Several processes may ask for the same features at once: one makes them, the others wait.

    Args:
        made_from: all that the features depend on, as plain values.
        make: makes them, (n, d) float32.
        folder: the site's cache; None uses the user's, see :func:`fedmr_med.data.cache.default_folder`.

    Returns:
        (n, d) float32, read-only, mapped into memory.

    Raises:
        DataError: the cache cannot be written.
    """
    place = features_folder(folder)
    try:
        for part in (place.parent, place):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = place / f"{_key(made_from)}.npy"
        with locked(path.with_suffix(".lock"), patience=math.inf):
            features = _mapped(path, shape)
            if features is None:
                fresh = make()
                if fresh.shape != shape or fresh.dtype != np.float32:
                    raise ValueError(f"features of shape {fresh.shape} and type {fresh.dtype}, not {shape} float32")
                with atomic_writer(path) as stream:
                    np.save(stream, fresh, allow_pickle=False)
                mapped = _mapped(path, shape)
                features = fresh if mapped is None else mapped
            os.utime(path)
        clean(folder, older_than_days=KEEP_DAYS)
    except OSError as e:
        raise DataError(
            f"The cache {place} cannot be used ({e.strerror or e}); set cache in site.yaml.",
            code="file.not-writable",
            key="cache",
        ) from e
    return features


def clean(folder: Path | None = None, *, older_than_days: float = 0) -> tuple[int, int]:
    """Remove the entries that were not used for some days; return how many, and their bytes.

    A process that has one of them open keeps it until it ends.
    """
    count = size = 0
    for path in features_folder(folder).glob("*.npy"):
        try:
            stat = path.stat()
            if time.time() - stat.st_mtime < older_than_days * _DAY:
                continue
            with locked(path.with_suffix(".lock"), patience=0):
                path.unlink()
        except (FileNotFoundError, TimeoutError):
            continue  # another process has removed it, or is opening it
        count, size = count + 1, size + stat.st_size
    return count, size


def features_folder(folder: Path | None = None) -> Path:
    """Return where features lie in a site's cache; None means the user's."""
    return (folder or default_folder()) / _FOLDER


def fingerprint(fold: Fold) -> str:
    """Return a hash of a fold's items and their order; decoded images have one of their pixels each already."""
    digest = hashlib.blake2b(digest_size=16)
    for row in fold.rows.tolist():
        if isinstance(fold.items, DecodedImages):
            digest.update(f"{fold.items[row].shape} {fold.items.digests[row]} ".encode())
        else:
            item = np.ascontiguousarray(fold.items[row])
            digest.update(f"{item.dtype.str} {item.shape} ".encode())
            digest.update(item.data)
    return digest.hexdigest()


def _key(made_from: Mapping[str, Any]) -> str:
    content = json.dumps([_VERSION, made_from], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _mapped(path: Path, shape: tuple[int, int]) -> Features | None:
    """Map an entry into memory; None where it has to be made: not there yet, or damaged."""
    if not path.exists():
        return None
    try:
        # An empty file cannot be mapped, and neither can an array without rows.
        features: Features = np.load(path, mmap_mode="r" if all(shape) else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        _log.warning("Making the features again: %s is damaged (%s).", path, e)
        return None
    if features.shape != shape or features.dtype != np.float32:
        _log.warning("Making the features again: %s holds %s of %s.", path, features.dtype, features.shape)
        return None
    return features
