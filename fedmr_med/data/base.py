"""What every data source gives a site: two folds of labelled items."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Fold(Protocol):
    """One fold (train or test) of one site's data.

    Attributes:
        groups: patient or lesion of each item, "" where it is not known; None where nothing says. Whatever is made of a
            fold keeps them: privacy of patients, intervals and what is held out follow from them.
    """

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each item, (n,) int64."""

    @property
    def groups(self) -> tuple[str, ...] | None:
        """Patient or lesion of each item."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        """Return item ``index``; an image is (height, width, 3) uint8, RGB."""


@dataclass(frozen=True)
class ArrayFold:
    """A fold held in memory.

    Attributes:
        items: (n, ...) array, one item per row; images are (n, height, width, channels) uint8, features (n, d) float32.
        labels: (n,) int64.
        groups: see :class:`Fold`.
    """

    items: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]
    groups: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        item: npt.NDArray[Any] = self.items[index]
        return item


@dataclass(frozen=True)
class SubsetFold:
    """Some items of a fold, without a copy of them.

    Attributes:
        indices: (n,) which items.
    """

    fold: Fold
    indices: npt.NDArray[np.int64]

    @cached_property  # every batch asks for them
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each item, (n,) int64."""
        labels: npt.NDArray[np.int64] = self.fold.labels[self.indices]
        return labels

    @cached_property
    def groups(self) -> tuple[str, ...] | None:
        """Patient or lesion of each item."""
        groups = self.fold.groups
        return None if groups is None else tuple(groups[index] for index in self.indices.tolist())

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        return self.fold[int(self.indices[index])]


@dataclass(frozen=True)
class JoinedFold:
    """Several folds, one after the other, without a copy of them."""

    folds: Sequence[Fold]

    @cached_property  # every batch asks for them
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each item, (n,) int64."""
        return np.concatenate([fold.labels for fold in self.folds])

    @cached_property
    def groups(self) -> tuple[str, ...] | None:
        """Patient or lesion of each item; one that several folds name is the same."""
        if all(fold.groups is None for fold in self.folds):
            return None
        return tuple(name for fold in self.folds for name in fold.groups or [""] * len(fold))

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum([len(fold) for fold in self.folds])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        fold = self.folds[number]
        return fold[index - int(self._ends[number]) + len(fold)]


def drawn_item(fold: Fold, index: int, seed: int) -> npt.NDArray[Any]:
    """Return an item of a fold; what a fold draws at random, as some datasets do, depends on ``seed`` alone."""
    if isinstance(fold, SubsetFold):
        return drawn_item(fold.fold, int(fold.indices[index]), seed)
    seeded = getattr(fold, "seeded", None)
    item: npt.NDArray[Any] = fold[index] if seeded is None else seeded(index, seed)
    return item


def array_rows(fold: Fold, indices: Sequence[int]) -> npt.NDArray[Any] | None:
    """Return items of a fold that is, or is part of, an array in memory; None for any other."""
    if isinstance(fold, SubsetFold):
        return array_rows(fold.fold, fold.indices[list(indices)].tolist())
    return fold.items[list(indices)] if isinstance(fold, ArrayFold) else None


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
    """A dataset in the hands of its clients.

    Attributes:
        clients: the training data of each client.
        skipped: what each client left out because it could not be read, one line each.
        test: the common test set.
    """

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
