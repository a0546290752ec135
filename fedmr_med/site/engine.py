"""A site behind any transport: a message comes in, a message goes out.

FLARE's executor, Flower's client and the in-process runner differ in how a message reaches a site and in nothing else.
So whether the site answers at all, and what of its answer may leave, is decided here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from fedmr_med import faults
from fedmr_med.arrays import Arrays, weights_digest
from fedmr_med.config import JobConfig
from fedmr_med.errors import PolicyError, WireError
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.release import check_left, released
from fedmr_med.site.secure import SecureSite
from fedmr_med.site.view import Place, SiteView, SiteViews
from fedmr_med.sites import SiteConfig
from fedmr_med.wire.agreement import check_settings
from fedmr_med.wire.codec import MODEL, Message, decode_task, encode_reply
from fedmr_med.wire.kinds import EXCHANGES, HEAD, SECURE, SUBMIT_MODEL, SURVEY, TRAIN
from fedmr_med.wire.messages import SiteReply, TrainTask
from fedmr_med.wire.secure import ASK_PART, decode_question, encode_answer

Train = Callable[[Any, TrainTask, Callable[[], bool]], SiteReply]
"""Lets who answers make the reply to a train task; the last argument says whether to stop."""


class Answers(Protocol):
    """Who answers at a site that may: a :class:`Hospital`, or a training script of its own."""

    def train(self, task: TrainTask, should_stop: Callable[[], bool]) -> SiteReply:
        """Return the reply to a train task."""

    def validate(self, task: TrainTask) -> SiteReply:
        """Return the scores of the received model."""

    def head_statistics(self, task: TrainTask) -> SiteReply:
        """Return the statistics for a closed-form head."""

    def survey(self, task: TrainTask) -> SiteReply:
        """Return what the site holds."""

    def trained_model(self) -> Arrays:
        """Return the local model of the last round."""


class OpenHospital:
    """Opens a site's data when it is first needed, and again when the settings it was opened with have changed."""

    def __init__(self) -> None:
        self._opened: tuple[SiteConfig, JobConfig, Hospital] | None = None

    def __call__(self, view: SiteView) -> Hospital:
        """Return the open site."""
        if self._opened is None or self._opened[:2] != (view.settings, view.job):
            self._opened, place = None, view.place  # not two of them in memory
            hospital = Hospital(place.name, view.job, view.settings, place.state_folder, witness=place.witness)
            self._opened = view.settings, view.job, hospital
        return self._opened[2]


class Site:
    """Answers for one site, as far as its people and its policy allow, before the work and before sending.

    Args:
        hospital: returns who answers, when an answer is needed.
        train: lets it make the reply to a train task.

    Attributes:
        view: the one under which the last answer was released; None before.
        weights: SHA-256 of those that came with the last task of an exchange; None before.
    """

    def __init__(
        self,
        views: SiteViews,
        hospital: Callable[[SiteView], Answers] | None = None,
        train: Train = lambda hospital, task, should_stop: hospital.train(task, should_stop),
    ):
        self.view: SiteView | None = None
        self.weights: str | None = None
        self._views, self._hospital, self._train = views, hospital or OpenHospital(), train

    @classmethod
    def simulated(cls, name: str, job: JobConfig, settings: SiteConfig, folder: Path) -> "Site":
        """Return a site of a federation on this machine: nobody is asked for approval, and it signs nothing."""
        return cls(simulated_views(name, job, settings, folder))

    def answer(self, kind: str, message: Message, should_stop: Callable[[], bool] = lambda: False) -> Message:
        """Answer a message as far as the site's policy allows.

        Raises:
            WireError: it does not have the agreed form, or was made with other settings of the job.
            FedMRError: the site refuses, or cannot answer.
            Aborted: ``should_stop`` said so.
        """
        view = self._views.before_work(should_stop)
        if kind in EXCHANGES:
            return self._exchange(kind, decode_task(message), view, should_stop)
        if kind == SECURE:
            question = decode_question(message)
            check_left(view.left, part=question.step == ASK_PART)
            _check_chain(question.release.chain, view)
            faults.reach(f"secure-{question.step}")
            place = view.place
            secure = SecureSite(place.name, view.job, view.policy, place.state_folder, place.identity())
            return self._released(kind, encode_answer(secure.answer(question)), view)
        if kind == SUBMIT_MODEL:
            return self._released(kind, Message({MODEL: self._hospital(view).trained_model()}), view)
        raise WireError(f"there is no message of the kind {kind!r}", code="wire.form")

    def exchange(self, kind: str, task: TrainTask, should_stop: Callable[[], bool] = lambda: False) -> Message:
        """Answer a task that is decoded already; see :meth:`answer`."""
        return self._exchange(kind, task, self._views.before_work(should_stop), should_stop)

    def _exchange(self, kind: str, task: TrainTask, view: SiteView, should_stop: Callable[[], bool]) -> Message:
        self.weights = weights_digest(task.weights)
        check_left(view.left, part=False)
        _check_chain(task.chain, view)
        check_settings(task.settings, view.job.digest())
        if task.rounds != view.job.federation.rounds:
            raise WireError(f"it is of {task.rounds} rounds, not {view.job.federation.rounds}", code="wire.round")
        hospital = self._hospital(view)
        if kind == TRAIN:
            faults.reach(f"train-{task.round + 1}")
            reply = self._train(hospital, task, should_stop)
        else:
            work = {HEAD: hospital.head_statistics, SURVEY: hospital.survey}.get(kind, hospital.validate)
            reply = work(task)
        return self._released(kind, encode_reply(kind, reply, halved=view.form.halved), view)

    def _released(self, kind: str, answer: Message, started: SiteView) -> Message:
        """Return what may leave of an answer under the policy as it is now.

        Raises:
            PolicyError: the training floors are others than those the work was held to.
        """
        view = self._views.before_sending()
        if view.policy.training != started.policy.training:
            raise PolicyError(
                "policy.training has changed since the site began its answer; the next one is held to it.",
                code="policy.changed",
                key="policy.training",
            )
        message = released(kind, answer, view.policy, view.form, left=view.left)
        self.view = view
        return message


def _check_chain(chain: str, view: SiteView) -> None:
    """Compare the chain that a message names with the job's: what was asked and approved is kept by chain.

    Raises:
        WireError: it is another; a server could ask every round again under a new name.
    """
    if view.chain and chain != view.chain:
        raise WireError(f"it is of the chain {chain}, and the job's is {view.chain}", code="wire.chain", key="chain")


def simulated_views(name: str, job: JobConfig, settings: SiteConfig, folder: Path) -> SiteViews:
    """Return the views of a site whose settings stay as they are, and that has nobody to ask."""
    return SiteViews(Place(name, folder, people=None), lambda: (settings, "memory"), lambda _: job)
