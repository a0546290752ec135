"""Batches of a fold, the same ones whatever the number of worker processes."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.config import TaskConfig
from fedmr_med.data import transforms
from fedmr_med.data.base import Fold
from fedmr_med.data.transforms import Augment, Plain, Transform, unchanged
from fedmr_med.seeding import derive_seed, numpy_generator

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

Batch = tuple[torch.Tensor, torch.Tensor]
Stream = tuple[int | str, ...]


@dataclass(frozen=True)
class _BatchMaker:
    """Makes one batch from a key: the stream of its epoch and the indices of its items. Runs in any process."""

    fold: Fold
    transform: Transform

    def __getitem__(self, key: tuple[Stream, tuple[int, ...]]) -> Batch:
        stream, indices = key
        labels = torch.from_numpy(self.fold.labels[list(indices)])
        if self.transform is unchanged or isinstance(self.transform, Plain):
            array = self.fold.together(indices)  # all at once takes a tenth of the time, of features a hundredth
            if array is not None:
                made = self.transform.together(array) if isinstance(self.transform, Plain) else array
                return torch.from_numpy(made), labels
        first = self._item(indices[0], derive_seed(*stream, indices[0]), None)
        items = np.empty((len(indices), *first.shape), dtype=first.dtype)
        items[0] = first
        for row, index in enumerate(indices[1:], start=1):
            self._item(index, derive_seed(*stream, index), items[row])
        return torch.from_numpy(items), labels

    def _item(self, index: int, seed: int, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        return self.transform(self.fold.drawn(index, seed), seed, out)


class Batches:
    """Mini-batches of a fold.

    Args:
        batch_size: items per batch; the last batch of an epoch may be smaller.
        workers: processes that make batches; 0 makes them in this one. They start with the first epoch and
            stay until this object goes.
    """

    def __init__(self, fold: Fold, transform: Transform, *, batch_size: int, workers: int = 0) -> None:
        self._maker = _BatchMaker(fold, transform)
        self._batch_size = batch_size
        self._workers = workers
        self._plan: list[tuple[Stream, tuple[int, ...]]] = []
        self._loader: DataLoader[Batch] | None = None

    @classmethod
    def of(
        cls, fold: Fold, task: TaskConfig, *, batch_size: int, augment: Augment = False, workers: int = 0
    ) -> "Batches":
        """Return a fold in batches as the network of a task takes it, with or without its random augmentation."""
        transform = transforms.build(task.transform, train=augment, image_size=task.image_size)
        return cls(fold, transform, batch_size=batch_size, workers=workers)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each item, (n,) int64, in the order of the fold."""
        return self._maker.fold.labels

    def __len__(self) -> int:
        """Return how many batches one pass over the fold has."""
        return math.ceil(len(self._maker.fold) / self._batch_size)

    def epoch(self, *stream: int | str, shuffle: bool, drop_single: bool = False) -> Iterator[Batch]:
        """Iterate over the fold once.

        Args:
            stream: names the randomness of this epoch, such as (seed, site, round, epoch): order and
                augmentation depend on nothing else.
            shuffle: in random order, or in the order of the fold.
            drop_single: leave out a last batch of a single item, on which BatchNorm cannot train.

        Yields:
            images (B, channels, height, width) float32 and labels (B,) int64.
        """
        count = len(self._maker.fold)
        order = numpy_generator(*stream, "order").permutation(count).tolist() if shuffle else list(range(count))
        starts = range(0, count, self._batch_size)
        plan = [(stream, tuple(order[start : start + self._batch_size])) for start in starts]
        if drop_single and plan and len(plan[-1][1]) == 1:
            plan.pop()
        yield from self._batches_of(plan)

    def drawn(self, *stream: int | str, plan: Iterable[tuple[int, ...]]) -> Iterator[Batch]:
        """Iterate over batches of chosen items, none of them empty.

        Args:
            stream: names the randomness of the augmentation; each batch gets its own.
            plan: the indices of each batch.

        Yields:
            as :meth:`epoch`.
        """
        yield from self._batches_of([((*stream, number), indices) for number, indices in enumerate(plan)])

    def _batches_of(self, plan: list[tuple[Stream, tuple[int, ...]]]) -> Iterator[Batch]:
        if not self._workers:
            yield from (self._maker[key] for key in plan)
            return
        # The loader's worker processes live on from epoch to epoch; only the list of keys it hands out changes.
        self._plan[:] = plan
        if self._loader is None:
            from torch.utils.data import DataLoader

            # A FLARE client has threads of its own, which forked processes do not survive: spawn them.
            self._loader = DataLoader(
                self._maker,  # type: ignore[arg-type]  # a map from keys to batches is all that is needed
                sampler=self._plan,
                batch_size=None,
                num_workers=self._workers,
                persistent_workers=True,
                multiprocessing_context="spawn",
            )
        yield from self._loader
