"""Data loaders in the form that FLamby expects, and what a strategy does with them."""

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fedmr_med.data.base import Fold
from fedmr_med.data.loading import Batch, Batches
from fedmr_med.errors import ConfigError
from fedmr_med.seeding import derive_seed
from fedmr_med.site import training


@dataclass(frozen=True)
class ExecutorBatches:
    """The batches that the executor trains a site on, as an endless data loader for FLamby's strategies.

    Order, augmentation and dropout of a round depend on (seed, site, round) alone, whoever trains. Therefore the first
    batch of a round also seeds torch's global generator, from which networks draw their dropout. Strategies weigh a
    client by the length of ``dataset``; a round has ``updates`` batches, and ``after_batch`` is called for each.
    """

    dataset: Fold
    batches: Batches
    seed: int
    site: str
    updates: int
    after_batch: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[Batch]:
        for round_number in itertools.count():
            stream = (self.seed, self.site, round_number)
            torch.manual_seed(derive_seed(*stream, "network"))
            for images, labels in itertools.islice(training.endless(self.batches, stream), self.updates):
                self.after_batch()
                yield images.contiguous(memory_format=torch.channels_last), labels


def class_numbers(labels: Tensor, num_classes: int) -> Tensor:
    """Return labels (B,) or (B, 1), whole numbers of any type, as (B,) int64.

    Raises:
        ConfigError: there is more than one label per sample, or one that is no class.
    """
    if labels.numel() != len(labels):
        why = f"FedMR needs one class per sample; the labels have shape {tuple(labels.shape)}."
        raise ConfigError(why, code="data.item", key="labels")
    flat = labels.reshape(-1)
    wrong = flat[(flat != flat.long()) | (flat < 0) | (flat >= num_classes)]
    if len(wrong):
        raise ConfigError(
            f"The label {wrong[0].item():g} is not a class from 0 to {num_classes - 1}.", code="data.label"
        )
    return flat.long()


def endless(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches over and over. The first pass opens at once: a loader draws its seed when it is opened."""
    return itertools.chain(iter(loader), itertools.chain.from_iterable(itertools.repeat(loader)))


def in_order(loader: Any) -> "DataLoader[Any]":
    """Return a loader of the same dataset without shuffling."""
    size = loader.batch_size or 1
    return DataLoader(loader.dataset, size, collate_fn=loader.collate_fn, num_workers=loader.num_workers)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put the global random generators back after the body, which may draw from them for loading and augmentation."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
