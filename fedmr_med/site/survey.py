"""A site's part in a survey: its pictures in numbers, without a network."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedmr_med.data.base import Fold, SiteData, class_counts
from fedmr_med.data.images import picture_size
from fedmr_med.data.subgroups import members
from fedmr_med.evaluation.clinical import FloatArray
from fedmr_med.statistics.survey import EDGES, TONES, Survey, not_measured

Mask = npt.NDArray[np.bool_]


def survey_of(
    data: SiteData, train: Mask, test: Mask, levels: tuple[tuple[str, str], ...], *, pictures: bool = True
) -> Survey:
    """Count and measure the images of the classes that may leave.

    Args:
        train, test: (C,) the classes whose training and test images count.
        levels: the job's subgroups.
        pictures: whether images are opened; else they are counted by class alone.
    """
    count = data.num_classes
    chosen, tested = (_of(fold, mask) for fold, mask in ((data.train, train), (data.test, test)))
    none = Survey(
        train=np.where(train, class_counts(data.train, count), 0),
        test=np.where(test, class_counts(data.test, count), 0),
        levels=members(data.train, levels)[chosen].sum(0).astype(np.int64),
        **not_measured(),
    )
    if not pictures or not _are_pictures(data.train):
        return none
    tones = np.array([tones_of(data.train[index]) for index in chosen]).reshape(-1, len(TONES))
    digests = [*_digests(data.train, chosen), *_digests(data.test, tested)]
    bins = np.searchsorted(EDGES, _edges(data.train, chosen), side="right") - 1
    return replace(
        none,
        edges=np.bincount(bins, minlength=len(EDGES)).astype(np.int64),
        doubles=np.array([len(digests) - len(set(digests))]),
        measured=np.array([len(chosen)]),
        tones=tones.sum(0),
        squares=(tones**2).sum(0),
    )


def tones_of(image: npt.NDArray[np.uint8]) -> FloatArray:
    """Return what is measured of a picture (height, width, channels), see :data:`fedmr_med.statistics.survey.TONES`."""
    values = image.reshape(-1, image.shape[-1]).astype(np.float64) / 255
    red, green, blue = values.mean(0) if values.shape[1] == 3 else (values.mean(),) * 3
    return np.array([values.mean(), values.std(), red, green, blue])


def _of(fold: Fold, classes: Mask) -> list[int]:
    return np.flatnonzero(classes[fold.labels]).tolist()


def _digests(fold: Fold, indices: list[int]) -> Iterable[bytes]:
    for index in indices:
        image = fold[index]
        yield hashlib.blake2b(repr(image.shape).encode() + image.tobytes(), digest_size=16).digest()


def _edges(fold: Fold, indices: list[int]) -> list[int]:
    """Return the shorter edge of each picture, as its file has it, or else as it is held."""
    records = fold.records
    return [min(picture_size(records[index].path) if records else fold[index].shape[:2]) for index in indices]


def _are_pictures(fold: Fold) -> bool:
    """Whether a fold holds pictures, and not volumes, tables or features."""
    first = fold[0]
    return bool(first.dtype == np.uint8 and first.ndim == 3)
