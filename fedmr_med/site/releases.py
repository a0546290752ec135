"""What may leave one site in one job: the one place that decides.

Made from the site's policy, its privacy budget and the job's closing. :mod:`fedmr_med.site.training_sums` and
:mod:`fedmr_med.site.scoring` make no more than the policy allows; where the job sums securely, values are held for the
sum, and the reply is without them.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, SiteData, class_counts
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.records import MAX_TERM, SiteReport
from fedmr_med.methods.base import Contribution
from fedmr_med.models import parameter_names
from fedmr_med.models.reply_forms import reply_form, statistic_sizes
from fedmr_med.network import Network
from fedmr_med.privacy.mechanisms import clipped_update
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import validated
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.site.images import Images
from fedmr_med.site.ledger import Ledgers
from fedmr_med.site.release import closed, permitted
from fedmr_med.site.scoring import Scoring
from fedmr_med.site.secure import SecureSite
from fedmr_med.site.statistics import shared_values
from fedmr_med.site.survey import survey_of
from fedmr_med.site.training_sums import TrainingSums
from fedmr_med.statistics.catalog import statistic_of
from fedmr_med.statistics.fields import Values
from fedmr_med.statistics.model_sums import ModelSums
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.statistics.pairs import PAIRS
from fedmr_med.statistics.scores import SCORES
from fedmr_med.statistics.shared import shared_statistics
from fedmr_med.statistics.subgroups import SUBGROUPS
from fedmr_med.statistics.survey import SURVEY_STATISTIC
from fedmr_med.wire.forms import MODELS
from fedmr_med.wire.kinds import HEAD, SURVEY, TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply, TrainTask

_log = logging.getLogger(__name__)


class Releases:
    """Decides what leaves.

    Attributes:
        sums: makes what leaves of the training images.
        scoring: makes what leaves of a model's answers to test images.

    Args:
        policy: the site's own, made stricter by the job where the job asks for less.
        fold: the training images.
    """

    def __init__(self, name: str, job: JobConfig, policy: SitePolicy, fold: Fold, state_folder: Path, ledgers: Ledgers):
        self._name, self._job, self._policy, self._ledgers = name, job, policy, ledgers
        self._form = reply_form(job)
        self._names = job.task.class_names
        self._method = methods.build(job.method)
        # It only holds vectors here; whoever answers the steps of a sum brings the site's certificate.
        self._secure = SecureSite(name, job, policy, state_folder, UNSIGNED)
        self.sums = TrainingSums(name, job, policy, fold, ledgers.sums, self._secure)
        self.scoring = Scoring(job, policy)

    def train(self, task: TrainTask, reply: SiteReply, images: Images) -> SiteReply:
        """Return what leaves of a reply to a train task, given the training images and the trained network."""
        federation = self._job.federation
        allowed = permitted(TRAIN, reply, self._policy, self._form)
        if federation.sums_statistics and self.sums.private is not None:
            # In a sum noise must stay whole, also where it makes a count look small.
            allowed = allowed.with_statistic(PROTOTYPES, reply.prototypes)
        models = {MODELS: self._model_sums(task, allowed, images.network)} if federation.sums_models else {}
        allowed = self._with_packages(TRAIN, allowed, lambda: images, lambda: self.sums.counts)
        return self._closed(TRAIN, task, allowed, models)

    def _model_sums(self, task: TrainTask, reply: SiteReply, network: Network) -> Values:
        """Return the trained model as sums that add up over the sites, its change scaled down if it is too long."""
        names, most = parameter_names(network), self._job.federation.clip_update
        model, length = clipped_update(reply.model, {name: task.model[name] for name in names}, most)
        if length > most:
            _log.warning("%s: the update of length %.3g is scaled down to clip_update %.3g", self._name, length, most)
        sums = ModelSums(self._method.server(), task.model, names)
        sums.add(Contribution(self._name, reply.samples, model, reply.payload))
        return sums.values()

    def report(self, data: SiteData, terms: Mapping[str, float], seconds: float) -> SiteReport | None:
        """Make the figures of a round of so many seconds for the summary; None where the policy shares none.

        A term of the local objective that diverged is left out, as no number stands for it.
        """
        if self._policy.share_metrics == "none":
            return None
        figures = {
            "seconds": seconds,
            "terms": {name: value for name, value in terms.items() if abs(value) <= MAX_TERM},
            "images_total": len(data.train) + len(data.test) + len(data.validation or ()) + len(data.skipped),
            "images_skipped": len(data.skipped),
            **self._ledgers.costs(self._policy),
        }
        return validated(SiteReport, figures, f"the report of {self._method.name}")

    def validate(self, task: TrainTask, images: Images, validation: Images | None = None) -> SiteReply:
        """Return what leaves of the scores of a received model on test images, if a secure sum does not take them."""
        scoring, scores = self.scoring, self.scoring.scores(images, validation)
        reply = SiteReply(self._name, task.round).with_statistic(SCORES, scores)
        reply = reply.with_statistic(SUBGROUPS, scoring.by_level(images, scores))
        reply = reply.with_statistic(PAIRS, scoring.paired(images, scores))
        reply = self._with_packages(VALIDATE, reply, lambda: images, lambda: scoring.counts(images))
        return self._closed(VALIDATE, task, reply)

    def head(self, task: TrainTask, open_images: Callable[[], Images]) -> SiteReply:
        """Return the statistics for a closed-form head that leave, if a secure sum does not take them.

        ``open_images`` loads the model and opens the images; nobody calls it where nothing is made of them.
        """
        reply = SiteReply(self._name, task.round, statistics=self.sums.head(task, open_images))
        if self.sums.private is None:
            reply = permitted(HEAD, reply, self._policy, self._form)
        reply = self._with_packages(HEAD, reply, open_images, lambda: self.sums.counts)
        return self._closed(HEAD, task, reply)

    def survey(self, task: TrainTask, data: SiteData) -> SiteReply:
        """Return what leaves of a survey of the site's images, if a secure sum does not take it."""
        train, test = (
            self._policy.told_classes(class_counts(fold, len(self._names)), self._names)
            for fold in (data.train, data.test)
        )
        reply = SiteReply(self._name)
        if train.any() or test.any():
            pictures = self._policy.share_survey == "images"
            made = survey_of(data, train, test, self._job.task.levels, pictures=pictures)
            reply = permitted(SURVEY, reply.with_statistic(SURVEY_STATISTIC, made), self._policy, self._form)
        return self._closed(SURVEY, task, reply)

    def _with_packages(
        self, kind: str, reply: SiteReply, open_images: Callable[[], Images], counts: Callable[[], IntArray]
    ) -> SiteReply:
        """Add the statistics of other packages; none where no class of ``counts`` (C,) images may leave."""
        statistics = shared_statistics(self._job.federation.statistics, kind)
        if not statistics or not (classes := self.sums.package_classes(kind, counts())).any():
            return reply
        network, batches, _ = open_images()
        sizes = statistic_sizes(self._job, network.feature_size)
        made = shared_values(network, batches, statistics, classes, sizes)
        return replace(reply, statistics={**reply.statistics, **made})

    def _closed(
        self, kind: str, task: TrainTask, reply: SiteReply, models: Mapping[str, Values] = MappingProxyType({})
    ) -> SiteReply:
        """Return what leaves of a reply, and hold the rest, with sums of ``models``, where the job sums securely."""
        if self._form.secure != "none":
            values = {part: statistic_of(part).exact(content) for part, content in reply.statistics.items()}
            self._secure.hold(task.chain, task.release(kind), {**values, **models}, self._form)
        return closed(reply, self._policy, self._form)
