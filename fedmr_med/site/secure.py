"""A site's part in secure sums: holds what its policy lets out, and answers the steps of the protocol."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fedmr_med.config import JobConfig
from fedmr_med.errors import PolicyError, WireError
from fedmr_med.files import private_files, write_text
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.secure import FEWEST
from fedmr_med.secure.cohort import Cohort
from fedmr_med.secure.identity import Identity
from fedmr_med.secure.participant import Participant
from fedmr_med.site.client_state import chain_folder
from fedmr_med.statistics.fields import Values
from fedmr_med.wire.agreement import check_settings
from fedmr_med.wire.forms import ReplyForm
from fedmr_med.wire.kinds import HEAD
from fedmr_med.wire.secure import (
    ASK_CONFIRMED,
    ASK_KEYS,
    ASK_MASKED,
    ASK_OFFER,
    ASK_PART,
    Answer,
    Question,
    session_of,
)

SECURE, COHORT_FILE = "secure", "cohort.jsonl"


class SecureSite:
    """The secure sums of one site in one job. Opens no data: a step of the protocol takes milliseconds.

    Args:
        policy: the site's policy as it is now, restricted by the job's.
    """

    def __init__(self, site: str, job: JobConfig, policy: SitePolicy, state_folder: Path, identity: Identity):
        self._site, self._job, self._policy = site, job, policy
        self._folder, self._identity = state_folder, identity

    def hold(self, chain: str, name: str, values: Mapping[str, Values], form: ReplyForm) -> None:
        """Keep what goes into the release ``name``, by statistic; what is not there is zero.

        A release whose vector was masked keeps it.

        Raises:
            WireError: a value is not finite, or too large for the sum.
        """
        participant = self._participant(chain, name)
        if participant.hold(name, form.pack(name, values), kept=HEAD if self._job.head.keep else ""):
            with private_files():
                write_text(participant.folder / f"{name}.policy", self._terms())
        for path in participant.folder.glob("*.policy"):
            if not path.with_suffix(".npy").exists():
                path.unlink()

    def settled(self, chain: str, release: str) -> bool:
        """Whether the site's vector for a release has left: there is no other one, so nothing need be made for it."""
        return self._participant(chain, release).settled(release)

    def answer(self, question: Question) -> Answer:
        """Answer one step.

        Raises:
            PolicyError: the site's rules do not allow it, or its policy or the job changed since it made the vector.
            WireError: the question does not fit the job, or what came before.
        """
        check_settings(question.settings, self._job.digest())
        release = question.release
        participant = self._participant(release.chain, release.name)
        if question.step == ASK_PART:
            return self._part(question, participant)
        if release.session != session_of(self._job.whole_digest(), release.session.partition("-")[0]):
            raise WireError("the session is of other settings of the job than there are here", code="wire.settings")
        if question.step == ASK_KEYS:
            return participant.keys(release.chain, release.session)
        if question.step == ASK_OFFER:
            return participant.offer(release, question.roster)
        if question.step == ASK_MASKED:
            path = participant.folder / f"{release.name}.policy"
            if not path.exists() or path.read_text(encoding="utf-8") != self._terms():
                raise PolicyError(
                    "policy or settings have changed since the site made its vector; the next release has them.",
                    code="policy.changed",
                )
            return participant.mask(release, question.roster, question.offers)
        if question.step == ASK_CONFIRMED:
            return participant.confirm(release, question.roster, question.survivors)
        return participant.unmask(release, question.roster, question.survivors, question.confirmations)

    def _part(self, question: Question, participant: Participant) -> Answer:
        """Take this site's part out of a total; that it has left the chain is looked at before anything is sent."""
        if self._job.federation.private is not None:
            raise PolicyError(
                "the vector has only a share of the noise of the total, and is not shown without the others.",
                code="secure.noise",
                key="federation.private",
            )
        least = max(FEWEST, self._job.federation.min_sites)
        if len(set(question.survivors)) < least:
            raise PolicyError(f"fewer than {least} sites would be left in the total", code="secure.too-few-left")
        return participant.part(question.release, question.survivors)

    def _participant(self, chain: str, release: str) -> Participant:
        floors, federation = self._policy.training, self._job.federation
        least = FEWEST if floors is None else floors.min_sites
        if federation.private is not None:
            least = max(least, federation.min_sites)  # fewer would not bring all of the noise
        # Of the exchanges of a job with noise, the statistics of a head alone have some on every number. It counts at a
        # site whose budget says how much it must be: a job could call anything noise.
        noisy = federation.private is not None and release.partition("-")[0] == HEAD
        guarded = noisy and self._policy.privacy is not None
        return Participant(
            self._site,
            chain_folder(self._folder, chain) / SECURE,
            self._identity,
            least=least,
            cohort=None if guarded else Cohort(self._folder / COHORT_FILE),
        )

    def _terms(self) -> str:
        """Return a hash of what a vector is made under: the policy, and the settings of the job."""
        return hashlib.sha256(f"{self._policy.model_dump_json()} {self._job.whole_digest()}".encode()).hexdigest()
