"""A site at work: opens its data and its network, and answers exchanges. Knows nothing of FLARE.

What may leave is decided in :mod:`fedmr_med.site.releases`, how a round trains in :mod:`fedmr_med.site.local_round`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fedmr_med import methods, models
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data.base import SiteData
from fedmr_med.errors import PolicyError
from fedmr_med.models.job_network import build_network
from fedmr_med.models.model_file import load_model, save_model
from fedmr_med.models.provenance import Provenance
from fedmr_med.site.client_state import chain_folder
from fedmr_med.site.features import SiteFeatures
from fedmr_med.site.floors import SiteFloors
from fedmr_med.site.images import Images, SiteBatches, open_data
from fedmr_med.site.ledger import Ledgers
from fedmr_med.site.local_round import LocalRounds
from fedmr_med.site.own import OwnLayers
from fedmr_med.site.private_training import PrivateTraining
from fedmr_med.site.received import check_model, check_task
from fedmr_med.site.releases import Releases
from fedmr_med.site.training import place
from fedmr_med.site.weights import StartingWeights
from fedmr_med.sites import SiteConfig
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.statistics.scores import SCORES
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply, TrainTask


class Hospital:
    """One site: loads its data and builds its network once, then answers tasks.

    Attributes:
        policy: the site's own policy, made stricter by the job where the job asks for less.
        data: the site's folds; ``batches`` are of them.
        releases: decides what leaves.
        counts: (C,) training images per class.
        network: rebuilt from what the server sends in every task.
        spent: seconds of the last train task by phase: ``score``, ``train`` and ``prototypes``.

    Args:
        job: the job's settings, as :func:`fedmr_med.data.demo.effective_job` returns them.
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
        self.name, self.job, self.state_folder = name, job, state_folder
        self.policy = policy = site.policy.restricted_by(job.policy)
        self.floors = SiteFloors(policy, state_folder)
        self.floors.check_job(job)
        self._weights = StartingWeights(job, state_folder, demanded=policy.training is not None)
        self.data = open_data(name, job, site) if site_data is None else site_data
        ledgers = Ledgers.of(state_folder, witness)
        self.releases = Releases(name, job, policy, self.data.train, state_folder, ledgers)
        self.counts = self.releases.sums.counts
        # By the site's own policy, the same in all jobs: by those of jobs that ask for fewer classes one could work out
        # what the rounding hides.
        self._samples = site.policy.released_samples(self.counts, job.task.class_names)
        # With noise nothing but images depends on their exact number.
        self.floors.check_amount(job, int(self.counts.sum()) if job.train.private is None else self._samples)
        self.private_training = None
        if (private := job.train.private) is not None:
            self.private_training = PrivateTraining(name, job, private, site.policy, self.data.train, ledgers.training)
        self._model_file = state_folder / "local_model.pt"
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.network = place(build_network(job) if network is None else network, self.device)
        self.spent: dict[str, float] = {}
        self.method = methods.build(job.method)
        training = self.network, self.counts, self._samples
        self._rounds = LocalRounds(name, job, *training, state_folder, self.private_training)
        if job.model.freeze_backbone and features is None:
            features = SiteFeatures(job, self.data, site.cache)
        self.batches = SiteBatches(job, self.data, features)

    @property
    def images(self) -> Images:
        """The training images as statistics are made of them: in order, without augmentation."""
        return Images(self.network, self.batches.plain, self.data.train)

    @property
    def test_images(self) -> Images:
        """The test images."""
        return Images(self.network, self.batches.test, self.data.test)

    @property
    def validation_images(self) -> Images | None:
        """The images that choose; None where the job has none."""
        if self.batches.validation is None or self.data.validation is None:
            return None
        return Images(self.network, self.batches.validation, self.data.validation)

    def train(self, task: TrainTask, should_stop: Callable[[], bool] = lambda: False) -> SiteReply:
        """Score the received model, train it for one round, and make the reply the policy allows.

        Raises:
            WireError: the task does not fit the job, or is not finite.
            FloorError: it does not keep to the site's training floors.
            WeightsError: the chain starts from other weights than the job's.
            BudgetError: the site's privacy budget for training does not allow another round.
        """
        started = time.monotonic()
        check_task(task, self.network, self.method)
        self._check(TRAIN, task)
        accepted, layers = task.accepted.get(self.name), self._own_layers(task)
        self.batches.open(task.backbone)
        with self._timed("score"):
            models.load_arrays(self.network, layers.load(accepted, task.averaged))
            received_scores = self.releases.scoring.scores(self.test_images, self.validation_images)
            if task.averaged:
                models.load_arrays(self.network, layers.load(accepted))
        withheld = bool(((self.counts > 0) & ~self.releases.sums.prototype_classes()).any())
        own = self._rounds.own_prototypes(task.chain, withheld=withheld)
        with self._timed("train"):
            known = None if own is None else own.load(accepted)
            trained = self._rounds.train(task, self.batches.train, known, should_stop)
        if self.policy.allow_submit_model:
            origin = Provenance.of(self.job, demo=self.data.is_demo, site=self.name)
            trained_arrays = models.state_arrays(self.network)
            save_model(self._model_file, trained_arrays, self.job, round_number=task.round + 1, provenance=origin)
        with self._timed("prototypes"):
            prototypes, stays = self.releases.sums.prototypes(task, self.images, keep_withheld=own is not None)
            if own is not None and stays is not None:
                own.save(task.round, stays, accepted)
        self.floors.note_answered(TRAIN, task)
        layers.save(task.round, models.state_arrays(self.network), accepted)
        reply = SiteReply(
            site=self.name,
            round=task.round,
            samples=self._samples,
            settings=self.job.digest(),
            model=layers.shared(models.state_arrays(self.network)),
            payload=trained.result.payload,
            report=self.releases.report(self.data, trained.terms, time.monotonic() - started),
            bytes_down=task.bytes,
        )
        reply = reply.with_statistic(PROTOTYPES, prototypes).with_statistic(SCORES, received_scores)
        return self.releases.train(task, reply, self.images)

    def validate(self, task: TrainTask) -> SiteReply:
        """Score the received model, as far as the policy allows, in the reply or for a secure sum.

        Raises:
            WireError: the model does not fit the job, or is not finite.
            FloorError: it does not keep to the site's training floors.
            WeightsError: the chain starts from other weights than the job's.
        """
        check_model(task, self.network)
        self._check(VALIDATE, task)
        self._load(task)
        answer = self.releases.validate(task, self.test_images, self.validation_images)
        self.floors.note_answered(VALIDATE, task)
        return answer

    def head_statistics(self, task: TrainTask) -> SiteReply:
        """Make the statistics for a closed-form head that the policy allows, in the reply or for a secure sum.

        Raises:
            FedMRError: see :meth:`validate`.
        """
        check_model(task, self.network)
        self._check(HEAD, task)
        answer = self.releases.head(task, lambda: self._load(task))
        self.floors.note_answered(HEAD, task)
        return answer

    def survey(self, task: TrainTask) -> SiteReply:
        """Count and measure the images as far as the policy allows, in the reply or for a secure sum."""
        return self.releases.survey(task, self.data)

    def _check(self, kind: str, task: TrainTask) -> None:
        """Look at the values of a task whose form was checked, before any image is."""
        self.floors.check_model(task, self.network)
        self.floors.check_repeat(kind, task)
        self._weights.check(kind, task)

    def _own_layers(self, task: TrainTask) -> OwnLayers:
        return OwnLayers(chain_folder(self.state_folder, task.chain) / "own_layers", self.job, task.model)

    def _load(self, task: TrainTask) -> Images:
        """Take over the received model, with the site's own layers where there are such; return the training images."""
        models.load_arrays(self.network, self._own_layers(task).load(task.accepted.get(self.name)))
        self.batches.open(task.backbone)
        return self.images

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
        return load_model(self._model_file, allow_code=True).model  # weights alone, of a file of its own

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.spent[phase] = time.perf_counter() - started
