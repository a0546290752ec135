"""From a list of labelled image files to the two folds of a site."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedmr_med.config import PreparationConfig, TaskConfig
from fedmr_med.data.base import SiteData
from fedmr_med.data.cache import DecodedImages, open_images
from fedmr_med.data.duplicates import Duplicate, find_duplicates, in_sentences
from fedmr_med.data.transforms import edge_for
from fedmr_med.errors import DataError
from fedmr_med.sites import SiteConfig

FoldName = Literal["train", "test"]

_LISTED = 10


@dataclass(frozen=True)
class Row:
    """One labelled image.

    Attributes:
        image: path of the file, relative to the data folder.
        label: number of its class.
        fold: ``train`` or ``test``.
        group: patient or lesion, "" if not known.
    """

    image: str
    label: int
    fold: FoldName
    group: str = ""


def as_fold(text: str) -> FoldName:
    """Return the name of a fold as it stands in a table, in any case; raise ValueError if it is neither."""
    if text.lower() == "train":
        return "train"
    if text.lower() == "test":
        return "test"
    raise ValueError(f"fold is {text!r}, not train or test")


def shared_groups(rows: Sequence[Row]) -> set[str]:
    """Return the patients or lesions that have images in both folds."""
    train = {row.group for row in rows if row.fold == "train" and row.group}
    return train & {row.group for row in rows if row.fold == "test"}


@dataclass(frozen=True)
class ImageFold:
    """A fold of images in the cache.

    Attributes:
        images: all decoded images of the site.
        positions: (n,) int64, where in ``images`` each item is.
        labels: (n,) int64.
        groups: see :class:`fedmr_med.data.base.Fold`.
    """

    images: DecodedImages
    positions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    groups: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        return self.images[int(self.positions[index])]


@dataclass(frozen=True)
class Opened:
    """All images of a table, opened.

    Attributes:
        images: decoded.
        skipped: the images that cannot be read, and why, one line each.
        duplicates: the pictures that are listed more than once.
    """

    images: DecodedImages
    skipped: tuple[str, ...]
    duplicates: tuple[Duplicate, ...]


def open_rows(
    root: Path,
    rows: Sequence[Row],
    *,
    image_size: int,
    cache: Path | None,
    preparation: PreparationConfig | None = None,
) -> Opened:
    """Decode the images of ``rows``, or take them from the cache.

    Raises:
        DataError: the cache cannot be written.
    """
    names = [row.image for row in rows]
    images = open_images(root, names, edge=edge_for(image_size), preparation=preparation, folder=cache)
    errors = zip(rows, images.errors, strict=True)
    skipped = tuple(f"{root / row.image}: {error}" for row, error in errors if error is not None)
    return Opened(images, skipped, tuple(find_duplicates(rows, images.digests)))


def site_data(root: Path, rows: Sequence[Row], task: TaskConfig, site: SiteConfig, *, prepared: bool) -> SiteData:
    """Decode the images of ``rows`` and return the two folds, in the order of the rows.

    Images that cannot be read are left out and listed, up to ``site.max_bad_fraction`` of all. Unless they are
    ``prepared`` already, they go through the preparation of the task.

    Raises:
        DataError: too many images cannot be read, or none of the train fold is left.
    """
    preparation = None if prepared else task.preparation
    opened = open_rows(root, rows, image_size=task.image_size, cache=site.cache, preparation=preparation)
    skipped = opened.skipped
    if problem := too_many_bad(skipped, len(rows), site):
        raise DataError(f"{problem}.", code="data.unreadable-images", key="max_bad_fraction")
    train, test = (_fold(opened.images, rows, fold) for fold in ("train", "test"))
    if not len(train):
        raise DataError(f"{root} has no readable image in the train fold.", code="data.empty")
    return SiteData(
        train=train,
        test=test,
        class_names=task.class_names,
        skipped=skipped,
        warnings=in_sentences(opened.duplicates),
    )


def too_many_bad(skipped: Sequence[str], total: int, site: SiteConfig) -> str | None:
    """Return what to say if more images cannot be read than the site allows."""
    if len(skipped) <= site.max_bad_fraction * total:
        return None
    listed = "; ".join(skipped[:_LISTED])
    more = f"; and {len(skipped) - _LISTED} more" if len(skipped) > _LISTED else ""
    return (
        f"{len(skipped)} of {total} images cannot be read, more than max_bad_fraction: "
        f"{site.max_bad_fraction:g} in site.yaml allows: {listed}{more}"
    )


def _fold(images: DecodedImages, rows: Sequence[Row], fold: str) -> ImageFold:
    """Return the readable images of one fold."""
    positions = [i for i, row in enumerate(rows) if row.fold == fold and images.errors[i] is None]
    labels = [rows[i].label for i in positions]
    groups = tuple(rows[i].group for i in positions)
    arrays = np.array(positions, dtype=np.int64), np.array(labels, dtype=np.int64)
    return ImageFold(images, *arrays, groups if any(groups) else None)
