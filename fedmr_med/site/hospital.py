"""A site at work: its data, its policy, its network. Knows nothing of FLARE."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from fedmr_med import data, methods, models
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data import transforms
from fedmr_med.data.base import SiteData, class_counts
from fedmr_med.data.loading import Batches
from fedmr_med.data.transforms import Transform
from fedmr_med.errors import DataError, PolicyError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.results import MAX_TERM, SiteReport
from fedmr_med.methods.base import ClientHalf, Contribution, LocalRound
from fedmr_med.models.job_network import build_network
from fedmr_med.models.model_file import load_model, save_model
from fedmr_med.models.reply_forms import sum_forms
from fedmr_med.privacy.mechanisms.clip import clipped_update
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.schema import validated
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.seeding import derive_seed, torch_stream
from fedmr_med.site import criterion
from fedmr_med.site.client_state import ClientStateStore
from fedmr_med.site.features import SiteFeatures
from fedmr_med.site.floors import SiteFloors
from fedmr_med.site.own_layers import OwnLayers
from fedmr_med.site.own_prototypes import OwnPrototypes
from fedmr_med.site.private import PrivateSums
from fedmr_med.site.private_training import PrivateTraining
from fedmr_med.site.received import check_model, check_task
from fedmr_med.site.release import permitted, permitted_statistics, released_scores
from fedmr_med.site.secure import SecureSite
from fedmr_med.site.statistics import head_statistics, hold_out
from fedmr_med.site.training import Trained, class_sums, local_steps, outputs, train
from fedmr_med.sites import SiteConfig
from fedmr_med.statistics.head import projection
from fedmr_med.statistics.model_sums import ModelSums
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply, TrainTask
from fedmr_med.wire.statistics import HeadReply
from fedmr_med.wire.totals import (
    Values,
    head_values,
    model_values,
    release_name,
    train_values,
    validate_values,
)

_log = logging.getLogger(__name__)


def open_data(name: str, job: JobConfig, site: SiteConfig) -> SiteData:
    """Load the data of a site, whose name is for messages.

    Raises:
        DataError: it is missing or damaged, or less than two training samples.
    """
    loaded = data.load(site, job.task, seed=job.seed)
    if len(loaded.train) < 2:
        raise DataError(
            f"Site {name} has {len(loaded.train)} training samples; training needs at least two.", code="data.too-few"
        )
    return loaded


class Hospital:
    """One site: loads its data and builds its network once, then answers tasks.

    Attributes:
        name: name of the site.
        job: the job's settings.
        policy: the site's own policy, made stricter by the job where the job asks for less.
        data: the site's two folds.
        counts: (C,) training images per class.
        network: rebuilt from what the server sends in every task.
        spent: seconds of the last train task by phase: ``score``, ``train`` and ``prototypes``.

    Args:
        name: name of the site.
        job: the job's settings, as :func:`fedmr_med.data.demo.effective_job` returns them.
        site: the site's own settings.
        state_folder: where the site keeps what it needs from round to round.
        network: a network of the job to use; sites that work one after the other can share one. None builds one.
        site_data: the site's data, where it is loaded already; see :func:`open_data`.
        features: the features of a job with a frozen backbone, where they are open already.
        witness: of the ledger of its privacy budget, see :mod:`fedmr_med.site.ledger`.

    Raises:
        DataError: the site has no usable data.
        FloorError: the job does not keep to the site's training floors.
    """

    def __init__(
        self,
        name: str,
        job: JobConfig,
        site: SiteConfig,
        state_folder: Path,
        *,
        network: models.Network | None = None,
        site_data: SiteData | None = None,
        features: SiteFeatures | None = None,
        witness: Path | None = None,
    ):
        self.name = name
        self.policy = site.policy.restricted_by(job.policy)
        self.floors = SiteFloors(self.policy, state_folder)
        self.floors.check_job(job)
        self.job = job
        self.data = open_data(name, job, site) if site_data is None else site_data
        self.floors.check_amount(job, len(self.data.train))
        self.counts = class_counts(self.data.train, job.task.num_classes)
        self.state_folder = state_folder
        private = job.federation.private
        self.private = None if private is None else PrivateSums(name, job, self.policy, state_folder, witness)
        self.private_training = PrivateTraining.of(name, job, self.policy, self.data.train, state_folder, witness)
        # It only holds vectors here; whoever answers the steps of a sum brings the site's certificate.
        self.secure = SecureSite(name, job, self.policy, state_folder, UNSIGNED)
        self._model_file = state_folder / "local_model.pt"
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.network = (build_network(job) if network is None else network).to(self.device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.spent: dict[str, float] = {}
        self.method = methods.build(job.method)
        self.features = features
        if job.model.freeze_backbone:
            self.features = features or SiteFeatures(job, self.data, site.cache)
            return  # the batches are of features, which the first task names
        train_transform = transforms.build(job.task.transform, train=job.train.augment, image_size=job.task.image_size)
        plain = transforms.build(job.task.transform, train=False, image_size=job.task.image_size)
        self._open_batches(self.data, train_transform, plain, job.train.workers)

    def _open_batches(self, folds: SiteData, augmented: Transform, plain: Transform, workers: int) -> None:
        size = self.job.train.batch_size
        self.train_batches = Batches(folds.train, augmented, batch_size=size, workers=workers)
        self.prototype_batches = Batches(folds.plain or folds.train, plain, batch_size=size, workers=workers)
        self.test_batches = Batches(folds.test, plain, batch_size=size, workers=workers)

    def _open_features(self, task: TrainTask) -> None:
        """Let the features of a frozen backbone take the place of the images, where the job has one."""
        if self.features is not None:
            folds = self.features.open(task.backbone)
            self._open_batches(folds, transforms.unchanged, transforms.unchanged, workers=0)

    @cached_property
    def classification_loss(self) -> criterion.Criterion:
        """The classification loss, made when first needed: a validation does not wait for MONAI's import."""
        return criterion.build(self.job.loss, self.counts, self.device)

    def train(self, task: TrainTask, should_stop: Callable[[], bool] = lambda: False) -> SiteReply:
        """Score the received model, train it for one round, and make the reply the policy allows.

        Raises:
            WireError: the task does not fit the job, or is not finite.
            FloorError: it does not keep to the site's training floors.
            BudgetError: the site's privacy budget for training does not allow another round.
        """
        started = time.monotonic()
        check_task(task, self.network, self.method)
        self.floors.check_model(task, self.network)
        self.floors.check_repeat(task)
        accepted = task.accepted.get(self.name)
        layers = OwnLayers(self.state_folder / task.chain / "own_layers", self.job, task.model)
        self._open_features(task)
        with self._timed("score"):
            models.load_arrays(self.network, layers.load(accepted, task.averaged))
            received_scores = self.score()
            if task.averaged:
                models.load_arrays(self.network, layers.load(accepted))
        own = self._own_prototypes(task.chain)
        store = ClientStateStore(self.state_folder / task.chain / self.method.name)
        with store.locked() if self.method.keeps_state else nullcontext():
            kept = store.load(accepted) if self.method.keeps_state else {}
            local = self._local_round(task, kept, None if own is None else own.load(accepted))
            client = self.method.client(local)
            with self._timed("train"):
                trained = self._trained(task, client, should_stop)
            if trained.result.state:
                store.save(task.round, trained.result.state, accepted)
        if self.policy.allow_submit_model:
            save_model(self._model_file, models.state_arrays(self.network), self.job, round_number=task.round + 1)
        with self._timed("prototypes"):
            prototypes, withheld = self._class_sums(keep_withheld=own is not None)
            if own is not None and withheld is not None:
                own.save(task.round, withheld, accepted)
            if self.private is not None:
                prototypes = self._private_sums(task)
        self.floors.note_answered(task)
        layers.save(task.round, models.state_arrays(self.network), accepted)
        reply = SiteReply(
            site=self.name,
            round=task.round,
            samples=self.policy.released_samples(self.counts, self.job.task.class_names),
            settings=self.job.digest(),
            model=layers.shared(models.state_arrays(self.network)),
            prototypes=prototypes,
            payload=trained.result.payload,
            scores=received_scores,
            bytes_down=task.bytes,
        )
        reply = replace(reply, report=self._report(trained.terms, time.monotonic() - started))
        private, names = self.private is not None, self.job.task.class_names
        reply = permitted(reply, self.policy, names, private=private, training_noise=self.job.train.noise)
        if not self.job.federation.sums_statistics:
            return reply
        # Noise must stay whole, also where it makes a count look small.
        values = train_values(prototypes if private else reply.prototypes, reply.scores)
        if self.job.federation.sums_models:
            values |= model_values(self._model_sums(task, reply))
        self._hold(TRAIN, task, values)
        secure, noise = self.job.federation.secure, self.job.train.noise
        return permitted(reply, self.policy, names, secure=secure, training_noise=noise)

    def _model_sums(self, task: TrainTask, reply: SiteReply) -> Values:
        """Return the trained model as sums that add up over the sites, its change scaled down if it is too long."""
        names, most = models.parameter_names(self.network), self.job.federation.clip_update
        model, length = clipped_update(reply.model, {name: task.model[name] for name in names}, most)
        if length > most:
            _log.warning("%s: the update of length %.3g is scaled down to clip_update %.3g", self.name, length, most)
        sums = ModelSums(self.method.server(), task.model, names)
        sums.add(Contribution(self.name, reply.samples, model, reply.payload))
        return sums.values()

    def _trained(self, task: TrainTask, client: ClientHalf, should_stop: Callable[[], bool]) -> Trained:
        """Train the network for one round.

        Raises:
            BudgetError: the site's budget for training does not allow it.
        """
        private = self.private_training
        if private is not None:
            private.charge(client.local.steps, chain=task.chain, release=release_name(TRAIN, task))
            return private.train(self.network, client, self.train_batches, self.classification_loss, should_stop)
        stream = (self.job.seed, self.name, task.round)
        with torch_stream(*stream, "network"):
            return train(
                self.network,
                client,
                self.train_batches,
                self.classification_loss,
                self.job.train,
                stream=stream,
                should_stop=should_stop,
            )

    def validate(self, task: TrainTask) -> Scores | None:
        """Score the received model; None where the policy shares no metrics, or a secure sum takes them.

        Raises:
            WireError: the model does not fit the job, or is not finite.
            FloorError: it does not keep to the site's training floors.
        """
        self._load(task)
        score = self.score()
        if not self.job.federation.sums_statistics:
            return score
        self._hold(VALIDATE, task, validate_values(score))
        return None

    def head_statistics(self, task: TrainTask) -> HeadReply:
        """Make the statistics for a closed-form head that the policy allows, in the reply or for a secure sum."""
        none = HeadReply(self.name, task.round)
        if self.private is not None:
            return self._private_head(self.private, task)
        reply = none if self.policy.privacy is not None else self._head_statistics(task)
        if not self.job.federation.sums_statistics:
            return reply
        # The total cannot tell whose scatter is missing, so a site that keeps it has no part in the head.
        parts = (reply.kept, reply.held_out) if self.policy.share_scatter else (None, None)
        self._hold(HEAD, task, head_values(*parts))
        return none

    def _private_head(self, private: PrivateSums, task: TrainTask) -> HeadReply:
        """Make the statistics for a closed-form head with noise, as far as the budget allows."""
        none, release = HeadReply(self.name, task.round), {"chain": task.chain, "release": release_name(HEAD, task)}
        if self.secure.opened(**release):
            return none
        self._load(task)
        if self.job.federation.sums_statistics:
            self._hold(
                HEAD, task, private.summed_head(self.network, self.prototype_batches, self.data.train, **release)
            )
            return none
        kept = private.head(self.network, self.prototype_batches, self.data.train, **release)
        return HeadReply(self.name, task.round, kept)

    def _private_sums(self, task: TrainTask) -> ClassSums | None:
        """Return the class sums of a round with noise; None in a round without, or where nothing may leave."""
        assert self.private is not None
        release = {"chain": task.chain, "release": release_name(TRAIN, task)}
        if not self.method.uses_prototypes or not self.private.due(task.round) or self.secure.opened(**release):
            return None
        return self.private.sums(self.network, self.prototype_batches, self.data.train, **release)

    def _hold(self, kind: str, task: TrainTask, values: Values) -> None:
        self.secure.hold(task.chain, release_name(kind, task), values, sum_forms(self.job, self.network))

    def _head_statistics(self, task: TrainTask) -> HeadReply:
        names, size = self.job.task.class_names, self.job.task.num_classes
        shared = self.policy.shareable_classes(self.counts, names)
        if not shared.any():
            return HeadReply(self.name, task.round)
        self._load(task)
        held = hold_out(
            self.data.train.labels,
            shared,
            fraction=self.job.head.held_out,
            smallest=self.policy.min_class_count,
            stream=(self.job.seed, self.name),
        )
        directions = projection(self.job.seed, self.network.feature_size, self.job.head.projection)
        kept, held_out = head_statistics(
            self.network, self.prototype_batches, size, shared, held, directions=directions
        )
        reply = HeadReply(self.name, task.round, kept, held_out if held.any() else None)
        return permitted_statistics(reply, self.policy, names)

    def _load(self, task: TrainTask) -> None:
        """Take over the received model, with this site's own layers where the job has such."""
        check_model(task, self.network)
        self.floors.check_model(task, self.network)
        layers = OwnLayers(self.state_folder / task.chain / "own_layers", self.job, task.model)
        models.load_arrays(self.network, layers.load(task.accepted.get(self.name)))
        self._open_features(task)

    def trained_model(self) -> Arrays:
        """Return the local model of the last round.

        Raises:
            PolicyError: the policy keeps local models on site.
            CheckpointError: this site has not trained yet.
        """
        if not self.policy.allow_submit_model or self.job.federation.sums_models:
            raise PolicyError(
                "submit_model was refused: policy.allow_submit_model is off, or the job sums models.",
                code="policy.task-refused",
                key="policy.allow_submit_model",
            )
        return load_model(self._model_file).model

    def score(self) -> Scores | None:
        """Score the network on the local test set, as far as the policy allows."""
        if self.policy.share_metrics == "none" or not len(self.data.test):
            return None
        return released_scores(*outputs(self.network, self.test_batches), self.policy, self.job.task.class_names)

    def _report(self, terms: Mapping[str, float], seconds: float) -> SiteReport | None:
        """Make the figures for the summary; a term that diverged is left out, as no number stands for it."""
        if self.policy.share_metrics == "none":
            return None
        figures = {
            "seconds": seconds,
            "terms": {name: value for name, value in terms.items() if abs(value) <= MAX_TERM},
            "images_total": len(self.data.train) + len(self.data.test) + len(self.data.skipped),
            "images_skipped": len(self.data.skipped),
            **({} if self.private is None else {"epsilon": self.private.epsilon()}),
            **({} if self.private_training is None else {"training_epsilon": self.private_training.epsilon()}),
        }
        return validated(SiteReport, figures, f"the report of {self.method.name}")

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.spent[phase] = time.perf_counter() - started

    def shared_classes(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Return the mask (C,) of the classes whose prototype this site sends in this job."""
        demanded = self.policy.privacy is not None and self.private is None
        shared = self.policy.shareable_classes(self.counts, self.job.task.class_names)
        return shared & (self.method.uses_prototypes and not demanded)

    def statistics_classes(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Return the mask (C,) of the classes whose statistics this site sends for a closed-form head in this job."""
        asked = self.method.head_exchange if self.job.head.exchange is None else self.job.head.exchange
        return self.policy.shareable_classes(self.counts, self.job.task.class_names) & (asked != "none")

    def _class_sums(self, *, keep_withheld: bool) -> tuple[ClassSums | None, ClassSums | None]:
        """Make the class sums that may leave and those that stay; nothing is computed where neither is wanted."""
        shared = torch.from_numpy(self.shared_classes() & (self.private is None))
        if not shared.any() and not keep_withheld:
            return None, None
        classes, unit = self.job.task.num_classes, self.method.unit_prototypes
        sums = class_sums(self.network, self.prototype_batches, classes, unit=unit)
        withheld = sums.only(torch.from_numpy(self._withheld())) if keep_withheld else None
        return (sums.only(shared) if shared.any() else None), withheld

    def _own_prototypes(self, chain: str) -> OwnPrototypes | None:
        """Return the store of this site's own prototypes, where the method uses them and a class is withheld.

        They have no noise, so private training does without.
        """
        reshaping = self.method.reshaping
        if (
            self.private_training is not None
            or reshaping is None
            or not reshaping.keeps_own_prototypes
            or not self._withheld().any()
        ):
            return None
        return OwnPrototypes(
            self.state_folder / chain / "own_prototypes",
            inertia=reshaping.inertia,
            num_classes=self.job.task.num_classes,
            feature_size=self.network.feature_size,
        )

    def _withheld(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Return the mask (C,) of the classes that this site holds and does not share."""
        return (self.counts > 0) & ~self.shared_classes()

    def _local_round(self, task: TrainTask, client_state: Arrays, own: Prototypes | None) -> LocalRound:
        parameters = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        generator = torch.Generator().manual_seed(derive_seed(self.job.seed, self.name, task.round, "method"))
        return LocalRound(
            network=self.network,
            received=parameters,
            prototypes=task.prototypes,
            counts=torch.from_numpy(self.counts).to(self.device),
            server_state=task.method,
            client_state=client_state,
            samples=len(self.data.train),
            steps=local_steps(len(self.data.train), self.job.train),
            lr=self.job.train.lr,
            momentum=self.job.train.momentum if self.job.train.optimizer == "sgd" else 0.0,
            round=task.round,
            rounds=task.rounds,
            generator=generator,
            own=own,
        )
