"""What holds at a site for one task: its settings, the job, and what its people have decided, all read once.

A site looks twice per task: before the work, and before anything leaves. So whoever changes the policy or takes an
approval back while the site computes is obeyed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedmr_med.config import JobConfig
from fedmr_med.data.labels import check_classes
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import NotApprovedError, WeightsError
from fedmr_med.secure.identity import UNSIGNED, Identity
from fedmr_med.site.approval import SHOWN, ApprovalBook, JobStatus, Verdict, settings_id
from fedmr_med.site.floors import SiteFloors
from fedmr_med.site.training import Aborted
from fedmr_med.sites import SiteConfig
from fedmr_med.wire.forms import ReplyForm

_POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Place:
    """What a transport knows of a site.

    Attributes:
        state_folder: where it keeps what it needs from round to round.
        people: the decisions of its people; None for a simulated site, which has nobody to ask.
        job_id: id of the job there.
        identity: returns what signs for the site in secure sums.
        witness: of the ledger of its privacy budget, see :mod:`fedmr_med.site.ledger`.
    """

    name: str
    state_folder: Path
    people: ApprovalBook | None
    job_id: str = ""
    identity: Callable[[], Identity] = lambda: UNSIGNED
    witness: Path | None = None


@dataclass(frozen=True)
class SiteView:
    """A site at one moment.

    Attributes:
        origin: where its settings come from, in words.
        job: the job as this site runs it.
        status: what its people have decided about the job; None where there is nobody to ask.
    """

    place: Place
    settings: SiteConfig
    origin: str
    job: JobConfig
    status: JobStatus | None

    @cached_property
    def policy(self) -> SitePolicy:
        """The site's own policy, made stricter by the job where the job asks for less."""
        return self.settings.policy.restricted_by(self.job.policy)

    @cached_property
    def floors(self) -> SiteFloors:
        """The site's training floors."""
        return SiteFloors(self.policy, self.place.state_folder)

    @property
    def form(self) -> ReplyForm:
        """The form of the job's replies."""
        return reply_form(self.job)

    @property
    def chain(self) -> str:
        """The id that the job has in common with its resumptions."""
        return self.job.chain or self.place.job_id

    @property
    def left(self) -> bool | None:
        """Whether a person has said that the site leaves the chain; None where there is nobody to say so."""
        return None if self.status is None else self.status.left

    @property
    def waits(self) -> bool:
        """Whether a person has yet to decide about the job."""
        return self.status is not None and self.status.verdict is Verdict.OPEN

    def check(self) -> None:
        """Return if the site may work for the job, and answer it.

        Raises:
            FedMRError: see :meth:`check_rules`.
            NotApprovedError: a person has refused the job, or nobody has approved it and the policy asks for it.
            WeightsError: it brings weights of its own, likewise.
        """
        self.check_rules()
        weights, allowed = self.job.model.weights, self.status is None or self.status.verdict is Verdict.APPROVED
        if self.policy.asks_about_weights(weights) and (self.status is None or self.waits):
            raise WeightsError(
                f"The job {self.job.name} brings weights with SHA-256 {weights}, which nobody here has approved. "
                f"`fedmr-med site jobs --approve {settings_id(self.job)[:SHOWN]}` lets it start; so does the digest in "
                "policy.training.weights.",
                code="weights.not-approved",
                key="policy.training.weights",
            )
        if not allowed:
            state = "waits for approval" if self.waits else "was refused here"
            advice = f"`fedmr-med site jobs --approve {settings_id(self.job)[:SHOWN]}` lets it start."
            raise NotApprovedError(
                f"The job {self.job.name} {state} (policy.approve: {self.policy.approve}). {advice}",
                code="policy.not-approved",
                key="policy.approve",
            )

    def check_rules(self) -> None:
        """Return if no rule of the site stands against the job, whatever its people decide.

        Raises:
            FloorError: the job does not keep to the site's training floors.
            PolicyError: a key that an installed package adds to the policy refuses it.
            ClassNamesError: it names the classes otherwise than the site does.
        """
        self.floors.check_job(self.job)
        if self.status is not None:
            self.floors.check_day(self.status.answered_before)
        check_classes(self.settings, self.job.task.class_names)


class SiteViews:
    """Looks at a site.

    Args:
        settings: reads the site's own settings, and says where they come from.
        job: reads the job, as a site with such settings runs it.
    """

    def __init__(
        self,
        place: Place,
        settings: Callable[[], tuple[SiteConfig, str]],
        job: Callable[[SiteConfig], JobConfig],
    ):
        self._place, self._settings, self._job = place, settings, job

    def before_work(self, should_stop: Callable[[], bool] = lambda: False) -> SiteView:
        """Return what holds once the site may work; wait for its people as long as its policy says.

        Raises:
            FedMRError: see :meth:`SiteView.check`; or settings, job or decisions cannot be read.
            Aborted: ``should_stop`` said so meanwhile.
        """
        started = time.monotonic()
        while (view := self._read()).waits and time.monotonic() - started < 60 * view.policy.approval_minutes:
            view.check_rules()
            if should_stop():
                raise Aborted
            time.sleep(_POLL_SECONDS)
        view.check()
        return view

    def before_sending(self) -> SiteView:
        """Return what holds now that a reply with content is about to leave, and count its job as answered.

        Raises:
            FedMRError: see :meth:`SiteView.check`; or settings, job or decisions cannot be read.
        """
        view = self._read()
        view.check()
        if self._place.people is not None and view.status is not None and not view.status.answered:
            self._place.people.answered(view.job, job_id=self._place.job_id, chain=view.chain)
        return view

    def _read(self) -> SiteView:
        """Look at the site, and write a request that is new into its people's book."""
        settings, origin = self._settings()
        place, job = self._place, self._job(settings)
        view = SiteView(place, settings, origin, job, None)
        if place.people is None:
            return view
        status = place.people.status(view.policy, job, job_id=place.job_id, chain=view.chain)
        if not status.asked:
            place.people.asked(job, job_id=place.job_id, chain=view.chain)
        return SiteView(place, settings, origin, job, status)
