"""The same images for everybody: folds cut for scoring, and the executor's batches in the form FLamby expects."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from fedmr_med.data.base import Fold
from fedmr_med.data.loading import Batch, Batches
from fedmr_med.seeding import derive_seed
from fedmr_med.site.training import endless


@dataclass(frozen=True)
class ExecutorBatches:
    """The batches that the executor trains a site on, as an endless data loader for FLamby's strategies.

    Order, augmentation and dropout of a round depend on (seed, site, round) alone, whoever trains. Therefore the
    first batch of a round also seeds torch's global generator, from which networks draw their dropout.

    Attributes:
        dataset: the fold; strategies weigh a client by its length.
        batches: of that fold.
        seed, site: with the round, what the executor draws from.
        updates: batches of a round.
        after_batch: called for each batch that is handed out.
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
            for images, labels in itertools.islice(endless(self.batches, stream), self.updates):
                self.after_batch()
                yield images.contiguous(memory_format=torch.channels_last), labels
