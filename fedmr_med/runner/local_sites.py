"""What the server asks of the sites, answered by one network that goes from site to site."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedmr_med import models
from fedmr_med.config import JobConfig
from fedmr_med.data import transforms
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.loading import Batches
from fedmr_med.errors import ConfigError, FedMRError, WireError
from fedmr_med.evaluation.metrics import Scores, scored
from fedmr_med.exchange.transport import Answer
from fedmr_med.models.job_network import build_network
from fedmr_med.privacy.refusals import code_of, in_words
from fedmr_med.process import kept_memory
from fedmr_med.site.client_state import CLIENT_STATE
from fedmr_med.site.engine import Site, simulated_views
from fedmr_med.site.features import SiteFeatures, feature_fold
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.images import open_data
from fedmr_med.site.training import outputs
from fedmr_med.site.view import SiteView
from fedmr_med.sites import SiteConfig
from fedmr_med.wire.codec import Message
from fedmr_med.wire.messages import Backbone, SiteReply, TrainTask

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What a federation is made of, wherever its sites work. It can be pickled.

    ``folder`` holds what the sites keep, a folder each; ``test`` is of the server, if it scores models itself.
    """

    job: JobConfig
    sites: Mapping[str, SiteConfig]
    folder: Path
    test: Fold | None = None


@dataclass(frozen=True)
class SiteAnswer:
    """What came of asking a site.

    Attributes:
        answer: its message, or why it gives none: in the words that would reach a server elsewhere.
        spent: seconds of a train task by phase, see :class:`fedmr_med.site.hospital.Hospital`.
    """

    answer: Answer
    spent: dict[str, float] = field(default_factory=dict)


class LocalSites:
    """Answers for all sites, one after the other, with one network; ``data`` is of those that are open already."""

    def __init__(self, work: Work, data: Mapping[str, SiteData] | None = None):
        self.work = work
        self._data = dict(data or {})
        self._network = build_network(work.job)
        self._test_batches: dict[str, Batches] = {}
        self._features: dict[str, SiteFeatures] = {}

    def answer(self, kind: str, site: str, message: Message, task: TrainTask | None) -> SiteAnswer:
        """Let a site answer; a refusal is an answer too, as it is in a federation.

        ``task`` is the message, where it is a task, decoded once for all sites.
        """
        opened: list[Hospital] = []

        def hospital(_: SiteView) -> Hospital:
            opened.append(self._hospital(site))
            return opened[-1]

        views = simulated_views(site, self.work.job, self.work.sites[site], self._folder(site))
        open_site = Site(views, hospital, train=lambda opened, task, _: self.reply(opened, task))
        try:
            with kept_memory():
                answer = open_site.answer(kind, message) if task is None else open_site.exchange(kind, task)
        except FedMRError as e:
            _log.warning("%s: %s", site, e)
            return SiteAnswer(WireError(in_words(code_of(e)), code="wire.refused"))
        return SiteAnswer(answer, opened[-1].spent if opened else {})

    def reply(self, hospital: Hospital, task: TrainTask) -> SiteReply:
        """Return a site's reply to a train task; a study of what bad replies do overrides it."""
        return hospital.train(task)

    def score(self, rows: str, task: TrainTask) -> Scores:
        """Score the received model on rows ``start:end`` of the server's test set.

        Raises:
            ConfigError: there is none.
        """
        if self.work.test is None:
            raise ConfigError("The server of this federation has no test set.", code="data.missing")
        with kept_memory():
            models.load_arrays(self._network, task.model)
            return scored(*outputs(self._network, self._test(self.work.test, rows, task.backbone)))

    def _folder(self, site: str) -> Path:
        return self.work.folder / CLIENT_STATE / site

    def _test(self, test: Fold, rows: str, backbone: Backbone | None) -> Batches:
        job = self.work.job
        if rows not in self._test_batches:
            part = test.subset(np.arange(*map(int, rows.split(":"))))
            plain = transforms.build(job.task.transform, train=False, image_size=job.task.image_size)
            if backbone is not None:
                part, plain = feature_fold(job, part, backbone), transforms.unchanged
            batches = Batches(part, plain, batch_size=job.train.batch_size, workers=job.train.workers)
            self._test_batches[rows] = batches
        return self._test_batches[rows]

    def _hospital(self, name: str) -> Hospital:
        work = self.work
        if name not in self._data:
            self._data[name] = open_data(name, work.job, work.sites[name])
        if work.job.model.freeze_backbone and name not in self._features:
            self._features[name] = SiteFeatures(work.job, self._data[name], work.sites[name].cache)
        return Hospital(
            name,
            work.job,
            work.sites[name],
            self._folder(name),
            network=self._network,
            site_data=self._data[name],
            features=self._features.get(name),
        )


def parts_of_test(test: Fold, batch_size: int, count: int) -> list[str]:
    """Cut the server's test set into at most ``count`` parts of whole batches, so that no batch changes."""
    step = -(-len(test) // (batch_size * count)) * batch_size
    return [f"{start}:{min(start + step, len(test))}" for start in range(0, len(test), step)]
