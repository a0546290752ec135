"""Features of a frozen backbone in a site's cache: made once, then mapped into memory by every process.

An entry is one array. It depends on all that the features do, the weights and the images among them, so that other
weights, another image size or another picture makes another entry. Entries that nobody used for a while go by
themselves.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fedmr_med.data.base import Fold
from fedmr_med.data.cache import DecodedImages, clean, default_folder, open_entry

KEEP_DAYS = 30
"""Entries that nobody used for so many days are removed when another one is opened."""

_VERSION = 1  # to be raised when features are made in another way

Features = npt.NDArray[np.float32]


def open_features(
    made_from: Mapping[str, Any], make: Callable[[], Features], *, shape: tuple[int, int], folder: Path | None = None
) -> Features:
    """Return features from the cache, or make them and put them there.

    Args:
        made_from: all that the features depend on, as plain values.
        make: makes them, (n, d) float32.
        folder: the site's cache; None uses the user's.

    Returns:
        (n, d) float32, read-only, mapped into memory.

    Raises:
        DataError: the cache cannot be written.
    """

    def read(path: Path) -> Features:
        # An array without rows cannot be mapped.
        features: Features = np.load(path, mmap_mode="r" if all(shape) else None, allow_pickle=False)
        if features.shape != shape or features.dtype != np.float32:
            raise ValueError(f"features of shape {features.shape} and type {features.dtype}, not {shape} float32")
        return features

    def write(stream: BinaryIO) -> None:
        np.save(stream, make(), allow_pickle=False)

    depends_on = json.dumps([_VERSION, made_from], sort_keys=True)
    _, features = open_entry(folder or default_folder(), "features", depends_on, read, write)
    clean("features", folder, older_than_days=KEEP_DAYS)
    return features


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
