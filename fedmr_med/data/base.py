"""What every data source gives a site: two folds of labelled items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt


class Items(Protocol):
    """Where a fold has its items: an array (n, ...), or anything else that gives one by its number.

    Items that are drawn at random have ``seeded(number, seed)`` besides, which depends on ``seed`` alone.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> npt.NDArray[Any]: ...


@dataclass(frozen=True)
class Record:
    """An image's file, and what the table says of it beside class and group, by column in lower case."""

    path: Path
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class Fold:
    """One fold (train or test) of one site's data.

    Attributes:
        items: images are (height, width, channels) uint8, RGB where they are in colour; features (d,) float32.
        labels: the class of each item of the fold, (n,) int64.
        groups: patient or lesion of each, "" where it is not known; None where nothing says. Whatever is made of a
            fold keeps them: privacy of patients, intervals and what is held out follow from them.
        picked: (n,) int64, where in ``items`` each is; None takes them in their order.
        records: of each item; None where there are no files.
    """

    items: Items
    labels: npt.NDArray[np.int64]
    groups: tuple[str, ...] | None = None
    picked: npt.NDArray[np.int64] | None = None
    records: tuple[Record, ...] | None = None

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """Where in ``items`` each item is, (n,)."""
        return np.arange(len(self.labels)) if self.picked is None else self.picked

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        return self.items[int(self.rows[index])]

    def drawn(self, index: int, seed: int) -> npt.NDArray[Any]:
        """Return an item; what is drawn at random, as some datasets do, depends on ``seed`` alone."""
        seeded = getattr(self.items, "seeded", None)
        item: npt.NDArray[Any] = self[index] if seeded is None else seeded(int(self.rows[index]), seed)
        return item

    def together(self, indices: Sequence[int]) -> npt.NDArray[Any] | None:
        """Return some items at once, (k, ...), where they are in an array; else None."""
        return self.items[self.rows[list(indices)]] if isinstance(self.items, np.ndarray) else None

    def subset(self, indices: npt.NDArray[np.int64]) -> "Fold":
        """Return some items of the fold, without a copy of them."""
        groups, records = (
            None if known is None else tuple(known[index] for index in indices.tolist())
            for known in (self.groups, self.records)
        )
        return replace(self, labels=self.labels[indices], groups=groups, picked=self.rows[indices], records=records)


def joined(folds: Sequence[Fold]) -> Fold:
    """Return several folds, one after the other, without a copy of them; a group that several name is the same."""
    from torch.utils.data import ConcatDataset

    labels = np.concatenate([fold.labels for fold in folds])
    names = tuple(name for fold in folds for name in fold.groups or [""] * len(fold))
    groups = None if all(fold.groups is None for fold in folds) else names
    records = tuple(record for fold in folds for record in fold.records or ())
    whole = all(fold.records is not None for fold in folds)
    return Fold(ConcatDataset(cast(Any, folds)), labels, groups, records=records if whole else None)


@dataclass(frozen=True)
class SiteData:
    """The data of one site, or a whole dataset that is yet to be partitioned.

    Attributes:
        train, test: the two folds, unreadable items already left out.
        class_names: one name per class of the task, in the order of the labels.
        plain: the train fold without augmentation, item by item, where the data augments itself; None elsewhere.
        is_demo: whether the pictures are generated; every log and report has to say so.
        skipped: what was left out because it could not be read, one line each.
        warnings: what makes its results doubtful, such as a picture in both folds, one sentence each.
        validation: what was taken out of the train fold to choose with; None where nothing was.
    """

    train: Fold
    test: Fold
    class_names: tuple[str, ...]
    is_demo: bool = False
    skipped: tuple[str, ...] = ()
    plain: Fold | None = None
    warnings: tuple[str, ...] = ()
    validation: Fold | None = None

    @property
    def num_classes(self) -> int:
        """How many classes the task has, whether or not this site holds them."""
        return len(self.class_names)


@dataclass(frozen=True)
class Partitioned:
    """The training data of each client, a line for each item it could not read, and the common test set."""

    clients: tuple[Fold, ...]
    skipped: tuple[tuple[str, ...], ...]
    test: Fold


def units(fold: Fold) -> npt.NDArray[np.int64]:
    """Return the number of the unit that each item belongs to, (n,): its patient or lesion, or the item itself."""
    if fold.groups is None:
        return np.arange(len(fold))
    # An item without a name of its own is alone.
    names = [(name, index if name == "" else -1) for index, name in enumerate(fold.groups)]
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([known[name] for name in names], dtype=np.int64)


def class_counts(fold: Fold, num_classes: int) -> npt.NDArray[np.int64]:
    """Return the number of items of each class, (num_classes,)."""
    counts: npt.NDArray[np.int64] = np.bincount(fold.labels, minlength=num_classes).astype(np.int64)
    return counts
