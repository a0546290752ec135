"""What may leave one site in one job: the one place that decides.

Made from the site's policy, its privacy budget and the job's closing. Classes that are opted out or too small are left
out of everything; where the job has noise it is added here; and where the job sums securely, values are held for the
sum, and the reply is without them.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med import methods
from fedmr_med.config import PAIR, JobConfig
from fedmr_med.data.base import Fold, SiteData, class_counts, units
from fedmr_med.data.loading import Batches
from fedmr_med.data.subgroups import members
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.evaluation.pairs import Pairs
from fedmr_med.evaluation.records import MAX_TERM, SiteReport
from fedmr_med.methods.base import Contribution
from fedmr_med.methods.plan import head_exchange
from fedmr_med.models import parameter_names
from fedmr_med.models.reply_forms import reply_form, statistic_sizes
from fedmr_med.network import Network
from fedmr_med.privacy.mechanisms import clipped_update
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.schema import validated
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.site.ledger import Ledgers
from fedmr_med.site.pairs import released_pairs
from fedmr_med.site.private import PrivateSums
from fedmr_med.site.release import closed, permitted, permitted_statistics, shared_classes
from fedmr_med.site.scores import released_scores
from fedmr_med.site.secure import SecureSite
from fedmr_med.site.statistics import Bound, head_statistics, hold_out, shared_values
from fedmr_med.site.subgroups import released_subgroups
from fedmr_med.site.survey import permitted_survey, survey_of
from fedmr_med.site.training import class_sums, every_output, outputs
from fedmr_med.statistics.base import Statistic
from fedmr_med.statistics.fields import Values
from fedmr_med.statistics.head import projection
from fedmr_med.statistics.model_sums import ModelSums
from fedmr_med.statistics.moments import HELD_OUT, KEPT, PROTOTYPES
from fedmr_med.statistics.pairs import PAIRS
from fedmr_med.statistics.scores import SCORES
from fedmr_med.statistics.shared import shared_statistics
from fedmr_med.statistics.subgroups import SUBGROUPS, Levels
from fedmr_med.statistics.survey import SURVEY_STATISTIC
from fedmr_med.wire.forms import MODELS
from fedmr_med.wire.kinds import HEAD, SURVEY, TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply, TrainTask

T = TypeVar("T")
Mask = npt.NDArray[np.bool_]

_log = logging.getLogger(__name__)


class Images(NamedTuple):
    """Images to make statistics of: a network that makes features, batches in the order of a fold, and the fold."""

    network: Network
    batches: Batches
    fold: Fold


class Releases:
    """Decides what leaves.

    Attributes:
        counts: (C,) training images per class.
        private: makes what leaves with noise; None where the job has none.

    Args:
        policy: the site's own, made stricter by the job where the job asks for less.
        fold: the training images.
    """

    def __init__(self, name: str, job: JobConfig, policy: SitePolicy, fold: Fold, state_folder: Path, ledgers: Ledgers):
        self._name, self._job, self.policy = name, job, policy
        self._form = reply_form(job)
        self._names = job.task.class_names
        self._method = methods.build(job.method)
        self.counts = class_counts(fold, job.task.num_classes)
        dominance = policy.dominance(brings_weights=job.model.weights is not None)
        self._bound = None if dominance is None else Bound.of(dominance, fold)
        self._enough = self.counts > 0 if self._bound is None else self._bound.enough(fold.labels, len(self._names))
        private = job.federation.private
        self._ledgers = ledgers
        self.private = None if private is None else PrivateSums(name, job, private, policy, ledgers.sums)
        # It only holds vectors here; whoever answers the steps of a sum brings the site's certificate.
        self._secure = SecureSite(name, job, policy, state_folder, UNSIGNED)

    def prototype_classes(self) -> Mask:
        """Return the mask (C,) of the classes whose prototype this site sends in this job."""
        return self._shareable() & self._method.uses_prototypes

    def statistics_classes(self) -> Mask:
        """Return the mask (C,) of the classes whose statistics this site sends for a closed-form head in this job."""
        return self._shareable() & (head_exchange(self._job) != "none")

    def _shareable(self) -> Mask:
        """Return the mask (C,) of the classes whose sums may leave: with noise where a budget asks for it."""
        noisy = self.private is not None  # fewer patients are no matter then
        allowed = noisy or self.policy.privacy is None
        return self.policy.shareable_classes(self.counts, self._names) & (self._enough | noisy) & allowed

    def scores(self, images: Images, validation: Images | None = None) -> Scores | None:
        """Score a network on test images, and on those that choose, as far as the policy allows."""
        if self.policy.share_metrics == "none" or not len(images.fold):
            return None
        patients = None if images.fold.groups is None else units(images.fold)
        scores = released_scores(*outputs(images.network, images.batches), self.policy, self._names, patients)
        if scores is None or scores.confusion is None or validation is None:
            return scores
        chosen_on = self.scores(validation)
        # Scalars do not add up, so they choose nothing.
        return replace(scores, validation=None if chosen_on is None or chosen_on.confusion is None else chosen_on)

    def prototypes(
        self, task: TrainTask, images: Images, *, keep_withheld: bool
    ) -> tuple[ClassSums | None, ClassSums | None]:
        """Make the class sums that may leave, with noise where the job has some, and those that stay.

        Nothing is computed where neither is wanted.
        """
        shared = torch.from_numpy(self.prototype_classes() & (self.private is None))
        sums = None
        if shared.any() or keep_withheld:
            unit = self._method.unit_prototypes
            sums = class_sums(images.network, images.batches, len(self._names), unit=unit, bound=self._bounded())
        withheld = (self.counts > 0) & ~self.prototype_classes()
        stays = None if sums is None or not keep_withheld else sums.only(torch.from_numpy(withheld))
        if self.private is not None:
            return self._noisy_prototypes(self.private, task, images), stays
        return (None if sums is None or not shared.any() else sums.only(shared)), stays

    def _bounded(self) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None:
        """Return what keeps single images from standing out in the sums of the classes that leave."""
        return None if self._bound is None else partial(self._bound, classes=self.prototype_classes())

    def _noisy_prototypes(self, private: PrivateSums, task: TrainTask, images: Images) -> ClassSums | None:
        due = self._method.uses_prototypes and private.due(task.round)
        if not due or self._secure.settled(task.chain, task.release(TRAIN)):
            return None
        return private.sums(*images, chain=task.chain, release=task.release(TRAIN))

    def train(self, task: TrainTask, reply: SiteReply, images: Images) -> SiteReply:
        """Return what leaves of a reply to a train task, given the training images and the trained network."""
        federation = self._job.federation
        allowed = permitted(TRAIN, reply, self.policy, self._form)
        if federation.sums_statistics and self.private is not None:
            # In a sum noise must stay whole, also where it makes a count look small.
            allowed = replace(allowed, prototypes=reply.prototypes)
        models = {MODELS: self._model_sums(task, allowed, images.network)} if federation.sums_models else {}
        shared = self._shared(TRAIN, lambda: images, self.counts)
        return self._closed(TRAIN, task, replace(allowed, shared=shared), models)

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
        if self.policy.share_metrics == "none":
            return None
        figures = {
            "seconds": seconds,
            "terms": {name: value for name, value in terms.items() if abs(value) <= MAX_TERM},
            "images_total": len(data.train) + len(data.test) + len(data.validation or ()) + len(data.skipped),
            "images_skipped": len(data.skipped),
            **self._ledgers.costs(self.policy),
        }
        return validated(SiteReport, figures, f"the report of {self._method.name}")

    def validate(self, task: TrainTask, images: Images, validation: Images | None = None) -> SiteReply:
        """Return what leaves of the scores of a received model on test images, if a secure sum does not take them."""
        scores = self.scores(images, validation)
        shared = self._shared(VALIDATE, lambda: images, self._counted(images))
        subgroups = self._by_level(images, scores)
        pairs = self._paired(images, scores) if self._job.model.name == PAIR else None
        reply = SiteReply(self._name, task.round, scores=scores, subgroups=subgroups, pairs=pairs, shared=shared)
        return self._closed(VALIDATE, task, reply)

    def _by_level(self, images: Images, whole: Scores | None) -> Levels:
        """Return what leaves of the scores of each level of the job's subgroups, beside those of all images."""
        levels = self._job.task.levels
        if whole is None or whole.confusion is None or not self.policy.told_levels(levels).any():
            return [None] * len(levels)
        logits, labels = outputs(images.network, images.batches)
        return released_subgroups(logits, labels, members(images.fold, levels), whole, self.policy, self._names, levels)

    def _paired(self, images: Images, whole: Scores | None) -> Pairs | None:
        """Return what leaves of a comparison of two models; the second one's logits are the features of the network."""
        features, logits, labels = every_output(images.network, images.batches)
        patients = None if images.fold.groups is None else units(images.fold)
        return released_pairs((logits.argmax(1), features.argmax(1)), labels, whole, self.policy, patients)

    def _counted(self, images: Images) -> IntArray:
        """Return how many test images (C,) there are of each class that has no small cell in the confusion matrix."""
        counts = class_counts(images.fold, len(self._names))
        if self.policy.min_cell_count == 1 or not shared_statistics(self._job.federation.statistics, VALIDATE):
            return counts
        logits, labels = outputs(images.network, images.batches)
        matrix = confusion_matrix(labels, logits.argmax(1), len(self._names))
        small = ((matrix > 0) & (matrix < self.policy.min_cell_count)).any(1)
        return np.where(small, 0, counts)

    def head(self, task: TrainTask, open_images: Callable[[], Images]) -> SiteReply:
        """Return the statistics for a closed-form head that leave, if a secure sum does not take them.

        ``open_images`` loads the model and opens the images; nobody calls it where nothing is made of them.
        """
        values, shared = self._head_values(task, open_images), self._shared(HEAD, open_images, self.counts)
        return self._closed(HEAD, task, SiteReply(self._name, task.round, statistics=values, shared=shared))

    def _head_values(self, task: TrainTask, open_images: Callable[[], Images]) -> dict[str, Values]:
        if self.private is not None:
            if self._secure.settled(task.chain, task.release(HEAD)):
                return {}
            return self.private.head(*open_images(), chain=task.chain, release=task.release(HEAD))
        shared = self._shareable()
        if not shared.any():
            return {}
        network, batches, fold = open_images()
        held = hold_out(
            fold,
            shared,
            fraction=self._job.head.held_out,
            smallest=self.policy.min_class_count,
            site=self._name,
        )
        directions = projection(self._job.seed, network.feature_size, self._job.head.projection)
        kept, held_out = head_statistics(
            network, batches, len(self._names), shared, held, directions=directions, bound=self._bound
        )
        values = _values(KEPT, kept) | _values(HELD_OUT, held_out if held.any() else None)
        return permitted_statistics(values, self.policy, self._names)

    def survey(self, task: TrainTask, data: SiteData) -> SiteReply:
        """Return what leaves of a survey of the site's images, if a secure sum does not take it."""
        train, test = (
            self.policy.told_classes(class_counts(fold, len(self._names)), self._names)
            for fold in (data.train, data.test)
        )
        survey, levels = None, self._job.task.levels
        if train.any() or test.any():
            made = survey_of(data, train, test, levels, pictures=self.policy.share_survey == "images")
            survey = permitted_survey(made, self.policy, self._names, levels)
        return self._closed(SURVEY, task, SiteReply(self._name, survey=survey))

    def package_classes(self, kind: str, counts: IntArray) -> Mask:
        """Return the mask (C,) of the classes whose images, ``counts`` of each, statistics of other packages are shown.

        Of training images they hold to the rule of too few patients like the other sums without noise.
        """
        private = self.private is not None
        classes = shared_classes(kind, counts, self.policy, self._names, private=private)
        return classes if kind == VALIDATE else classes & self._enough

    def _shared(self, kind: str, open_images: Callable[[], Images], counts: IntArray) -> dict[str, Values]:
        """Make the statistics of other packages; nothing where no class of ``counts`` (C,) images may leave."""
        statistics = shared_statistics(self._job.federation.statistics, kind)
        if not statistics or not (classes := self.package_classes(kind, counts)).any():
            return {}
        network, batches, _ = open_images()
        return shared_values(network, batches, statistics, classes, statistic_sizes(self._job, network.feature_size))

    def _closed(
        self, kind: str, task: TrainTask, reply: SiteReply, models: Mapping[str, Values] = MappingProxyType({})
    ) -> SiteReply:
        """Return what leaves of a reply, and hold the rest, with sums of ``models``, where the job sums securely."""
        if self._form.secure != "none":
            scores = None if reply.scores is None or reply.scores.confusion is None else reply.scores
            values = {**_values(PROTOTYPES, reply.prototypes), **_values(SCORES, scores), **models}
            known = reply.subgroups if any(part is not None for part in reply.subgroups) else None
            values |= {**_values(SUBGROUPS, known), **_values(PAIRS, reply.pairs)}
            values |= {**reply.statistics, **reply.shared, **_values(SURVEY_STATISTIC, reply.survey)}
            self._secure.hold(task.chain, task.release(kind), values, self._form)
        return closed(reply, self.policy, self._form)


def _values(statistic: Statistic[T], content: T | None) -> dict[str, Values]:
    return {} if content is None else {statistic.name: statistic.values(content)}
