"""From a list of labelled image files to the two folds of a site, and pictures that are there twice."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedmr_med.config import PreparationConfig, TaskConfig
from fedmr_med.data.base import Fold, Items, Record, SiteData
from fedmr_med.data.cache import DecodedImages, open_images
from fedmr_med.data.images import grey
from fedmr_med.data.transforms import edge_for, normalisation
from fedmr_med.errors import DataError
from fedmr_med.sites import SiteConfig

FoldName = Literal["train", "test"]

_LISTED = 10

Kind = Literal["folds", "labels", "names"]

SIMILAR = 0.95
"""Correlation from which on two images are taken for one picture."""

_EDGE = 16  # of a thumbnail
_EVEN = 1.0  # brightness steps of so little in all are noise
_AT_ONCE = 1024  # test images that are compared together
_MEANING: dict[Kind, str] = {
    "folds": "in both folds, so the test is too easy",
    "labels": "with two labels, one of which is wrong",
    "names": "under several names, so they count more than once",
}


@dataclass(frozen=True)
class Row:
    """One labelled image.

    Attributes:
        image: path of the file, relative to the data folder.
        label: number of its class.
        group: patient or lesion, "" if not known.
        attributes: what else the table says of it, by column in lower case.
    """

    image: str
    label: int
    fold: FoldName
    group: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict, compare=False)


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


def check_groups(where: str, shared: Collection[str], allowed: bool) -> None:
    """Refuse patients or lesions that are in both folds: the test would not be one."""
    if shared and not allowed:
        raise DataError(
            f"{where}: group {min(shared)!r} is in both folds ({len(shared)} such groups). Correct the folds, or set "
            "data.allow_shared_groups: true in site.yaml.",
            code="data.shared-groups",
            key="data.allow_shared_groups",
        )


@dataclass(frozen=True)
class GreyImages:
    """The images of the cache, which are in RGB, as a task of one channel takes them: (height, width, 1)."""

    images: DecodedImages

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> npt.NDArray[np.uint8]:
        return grey(self.images[number])


@dataclass(frozen=True)
class Duplicate:
    """A picture that a table lists several times, in rows whose images have the same pixels."""

    rows: tuple[Row, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What is wrong with it: it is in both folds, has two labels, or, if neither, just several names."""
        kinds: list[Kind] = []
        if len({row.fold for row in self.rows}) > 1:
            kinds.append("folds")
        if len({row.label for row in self.rows}) > 1:
            kinds.append("labels")
        return tuple(kinds) or ("names",)

    def __str__(self) -> str:
        return " = ".join(row.image for row in self.rows)


def find_duplicates(rows: Sequence[Row], digests: Sequence[str]) -> list[Duplicate]:
    """Return the pictures that occur more than once, in the order of their first row.

    Args:
        digests: hash of the pixels of each row's image, "" where they could not be read.
    """
    by_digest: dict[str, list[Row]] = {}
    for row, digest in zip(rows, digests, strict=True):
        if digest:
            by_digest.setdefault(digest, []).append(row)
    return [Duplicate(tuple(same)) for same in by_digest.values() if len(same) > 1]


def find_similar(
    train: Sequence[Row], test: Sequence[Row], images: Iterable[npt.NDArray[np.uint8]]
) -> list[tuple[Row, Row]]:
    """Return the pairs of a test and a train image that nearly agree, such as a picture in another size or exposure.

    Two images agree as far as the brightness steps of their thumbnails correlate. Over 3,000,000 pairs of different
    lesions of ISIC2019 one came above ``SIMILAR``, a picture that is there twice. Of copies, all in half their size or
    another exposure do, nine of ten in a third of their size and strongly compressed, and six of seven that were cut
    by 2 % at each edge; those that were turned or mirrored do not.

    Args:
        images: of the train rows, then of the test rows, (height, width, 3).
    """
    steps = np.array([_steps(image) for image in images], dtype=np.float32).reshape(len(train) + len(test), -1)
    known, pairs = steps[: len(train)], []
    for start in range(0, len(test), _AT_ONCE):
        close = steps[len(train) + start :][:_AT_ONCE] @ known.T >= SIMILAR
        pairs += [(test[start + row], train[column]) for row, column in np.argwhere(close).tolist()]
    return pairs


def _steps(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the differences between neighbours of a grey thumbnail, of length 1; zeros for an even or tiny image."""
    grey = image.mean(2, dtype=np.float32)
    if min(grey.shape) < _EDGE:
        return np.zeros(2 * _EDGE * (_EDGE - 1), np.float32)
    rows, columns = (np.linspace(0, size, _EDGE + 1).astype(np.int64) for size in grey.shape)
    cells = np.add.reduceat(np.add.reduceat(grey, rows[:-1], 0), columns[:-1], 1)
    cells /= np.outer(np.diff(rows), np.diff(columns))
    steps = np.concatenate([np.diff(cells, axis=axis).ravel() for axis in (0, 1)])
    length = float(np.linalg.norm(steps))
    return (steps / max(length, _EVEN) * (length > _EVEN)).astype(np.float32)


def in_sentences(duplicates: Sequence[Duplicate]) -> tuple[str, ...]:
    """Return one sentence for each thing that is wrong, with the first pictures it is wrong with."""
    sentences = []
    for kind, meaning in _MEANING.items():
        of_kind = [duplicate for duplicate in duplicates if kind in duplicate.kinds]
        if of_kind:
            count = "1 picture is" if len(of_kind) == 1 else f"{len(of_kind)} pictures are"
            more = f"; and {len(of_kind) - 3} more" if len(of_kind) > 3 else ""
            sentences.append(f"{count} {meaning}: {'; '.join(map(str, of_kind[:3]))}{more}.")
    return tuple(sentences)


@dataclass(frozen=True)
class Opened:
    """All images of a table; those that cannot be read and why, a line each; the pictures listed more than once."""

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
    """Decode the images of ``rows``, or take them from the cache; raise DataError if the cache cannot be written."""
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
        ConfigError: the transform of the task is for images with other channels.
        DataError: the task is not for image files, too many of them cannot be read, or none of the train fold is left.
    """
    if task.channels not in (1, 3):
        raise DataError(
            f"task.channels of the job is {task.channels}, and image files have 1 (grey) or 3 (colour).",
            code="data.channels",
            key="task.channels",
        )
    normalisation(task.transform, task.channels)  # refuses what does not fit, before anything is decoded
    preparation = None if prepared else task.preparation
    opened = open_rows(root, rows, image_size=task.image_size, cache=site.cache, preparation=preparation)
    skipped = opened.skipped
    if problem := too_many_bad(skipped, len(rows), site):
        raise DataError(f"{problem}.", code="data.unreadable-images", key="max_bad_fraction")
    items = GreyImages(opened.images) if task.channels == 1 else opened.images
    train, test = (_fold(root, items, opened.images.errors, rows, fold) for fold in ("train", "test"))
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


def _fold(root: Path, items: Items, errors: Sequence[str | None], rows: Sequence[Row], fold: str) -> Fold:
    """Return the readable images of one fold."""
    readable = [i for i, row in enumerate(rows) if row.fold == fold and errors[i] is None]
    labels = np.array([rows[i].label for i in readable], dtype=np.int64)
    groups = tuple(rows[i].group for i in readable)
    records = tuple(Record(root / rows[i].image, rows[i].attributes) for i in readable)
    return Fold(items, labels, groups if any(groups) else None, np.array(readable, dtype=np.int64), records)
