"""The local rounds of a site: the method trains the network, with what the site keeps from round to round."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med import methods
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data.loading import Batches
from fedmr_med.methods.base import ClientHalf, LocalRound
from fedmr_med.network import Network
from fedmr_med.prototypes import Prototypes
from fedmr_med.seeding import derive_seed, torch_stream
from fedmr_med.site import criterion
from fedmr_med.site.client_state import ClientStateStore, chain_folder
from fedmr_med.site.own import OwnPrototypes
from fedmr_med.site.private_training import PrivateTraining
from fedmr_med.site.training import Trained, local_steps, to_device, train, warn_if_modes_differ
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import TrainTask


class LocalRounds:
    """Trains for one site, and keeps the method's state of it.

    Args:
        network: holds the received model when a round begins.
        counts: (C,) training images per class.
        samples: their number as it leaves: methods that weigh a site by it must not mix it with the exact one.
        private: trains with noise; None where the job has none.
    """

    def __init__(
        self,
        name: str,
        job: JobConfig,
        network: Network,
        counts: npt.NDArray[np.int64],
        samples: int,
        state_folder: Path,
        private: PrivateTraining | None,
    ):
        self._name, self._job, self._method = name, job, methods.build(job.method)
        self._network = network
        self._counts, self._samples = counts, samples
        self._folder, self._private = state_folder, private

    @cached_property
    def _device(self) -> torch.device:
        return next(self._network.parameters()).device

    @cached_property
    def classification_loss(self) -> criterion.Criterion:
        """The classification loss, made when first needed: a validation does not wait for MONAI's import."""
        return criterion.build(self._job.loss, self._counts, self._device)

    def own_prototypes(self, chain: str, *, withheld: bool) -> OwnPrototypes | None:
        """Return the store of this site's own prototypes, where the method uses them and a class is withheld.

        They have no noise, so private training does without.
        """
        reshaping = self._method.reshaping
        if self._private is not None or reshaping is None or not reshaping.keeps_own_prototypes or not withheld:
            return None
        return OwnPrototypes(
            chain_folder(self._folder, chain) / "own_prototypes",
            inertia=reshaping.inertia,
            num_classes=self._job.task.num_classes,
            feature_size=self._network.feature_size,
        )

    def train(
        self,
        task: TrainTask,
        batches: Batches,
        own: Prototypes | None,
        should_stop: Callable[[], bool],
    ) -> Trained:
        """Train the network for one round.

        Raises:
            BudgetError: the site's budget for training does not allow it.
            Aborted: ``should_stop`` said so.
        """
        if task.round == 0 and self._job.train.norm_statistics == "batch":
            first, _ = next(iter(batches.epoch("modes", shuffle=False)))
            warn_if_modes_differ(self._network, to_device(first, self._device), site=self._name)
        accepted = task.accepted.get(self._name)
        store = ClientStateStore(chain_folder(self._folder, task.chain) / self._method.name)
        with store.locked() if self._method.keeps_state else nullcontext():
            kept = store.load(accepted) if self._method.keeps_state else {}
            client = self._method.client(self._local_round(task, kept, own))
            trained = self._trained(task, client, batches, should_stop)
            if trained.result.state:
                store.save(task.round, trained.result.state, accepted)
        return trained

    def _trained(
        self,
        task: TrainTask,
        client: ClientHalf,
        batches: Batches,
        should_stop: Callable[[], bool],
    ) -> Trained:
        if self._private is not None:
            self._private.charge(client.local.steps, chain=task.chain, release=task.release(TRAIN))
            return self._private.train(self._network, client, batches, self.classification_loss, should_stop)
        stream = (self._job.seed, self._name, task.round)
        with torch_stream(*stream, "network"):
            return train(
                self._network,
                client,
                batches,
                self.classification_loss,
                self._job.train,
                stream=stream,
                should_stop=should_stop,
            )

    def _local_round(self, task: TrainTask, kept: Arrays, own: Prototypes | None) -> LocalRound:
        settings = self._job.train
        return LocalRound(
            network=self._network,
            received={name: p.detach().clone() for name, p in self._network.named_parameters()},
            prototypes=task.prototypes,
            counts=torch.from_numpy(self._counts).to(self._device),
            server_state=task.method,
            client_state=kept,
            samples=self._samples,
            steps=local_steps(int(self._counts.sum()) if self._private is None else self._samples, settings),
            lr=settings.lr,
            momentum=settings.momentum if settings.optimizer == "sgd" else 0.0,
            round=task.round,
            rounds=task.rounds,
            generator=torch.Generator().manual_seed(derive_seed(self._job.seed, self._name, task.round, "method")),
            own=own,
        )
