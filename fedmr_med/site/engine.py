"""A site behind any transport: a message comes in, a message goes out.

FLARE's executor, Flower's client and the in-process runner differ in how a message reaches a site and in nothing else.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from fedmr_med import faults, models
from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.secure import SecureSite
from fedmr_med.sites import SiteConfig
from fedmr_med.wire.agreement import check_settings
from fedmr_med.wire.codec import Message, decode_task, encode_reply, encode_validation
from fedmr_med.wire.kinds import EXCHANGES, HEAD, SECURE, TRAIN
from fedmr_med.wire.messages import SiteReply, TrainTask
from fedmr_med.wire.secure import decode_question, encode_answer
from fedmr_med.wire.statistics import encode_statistics

Train = Callable[[Hospital, TrainTask, Callable[[], bool]], SiteReply]
"""Makes a site's reply to a train task; the last argument says whether to stop."""


class Site:
    """Answers for one site.

    Args:
        hospital: opens the site, when its data is needed first.
        secure: returns its part in secure sums, under its policy as it is now; no data is opened for it.
        train: makes the reply to a train task.
    """

    def __init__(
        self, hospital: Callable[[], Hospital], secure: Callable[[], SecureSite], train: Train = Hospital.train
    ):
        self._hospital, self._secure, self._train = hospital, secure, train

    @classmethod
    def simulated(cls, name: str, job: JobConfig, settings: SiteConfig, folder: Path) -> "Site":
        """Return a site of a federation on this machine: nobody is asked for approval, and it signs nothing.

        Args:
            name: name of the site.
            job: the job's settings, as :func:`fedmr_med.data.demo.effective_job` returns them.
            settings: the site's own.
            folder: where the site keeps what it needs from round to round.
        """
        policy = settings.policy.restricted_by(job.policy)
        return cls(
            cache(lambda: Hospital(name, job, settings, folder)),
            lambda: SecureSite(name, job, policy, folder, UNSIGNED),
        )

    def answer(self, kind: str, message: Message, should_stop: Callable[[], bool] = lambda: False) -> Message:
        """Answer a message as far as the site's policy allows.

        Raises:
            WireError: it does not have the agreed form, or was made with other settings of the job.
            FedMRError: the site refuses, or cannot answer.
            Aborted: ``should_stop`` said so.
        """
        if kind == SECURE:
            question = decode_question(message)
            faults.reach(f"secure-{question.step}")
            return encode_answer(self._secure().answer(question))
        if kind not in EXCHANGES:
            raise WireError(f"there is no message of the kind {kind!r}", code="wire.form")
        return self.exchange(kind, decode_task(message), should_stop)

    def exchange(self, kind: str, task: TrainTask, should_stop: Callable[[], bool] = lambda: False) -> Message:
        """Answer a task that is decoded already; see :meth:`answer`."""
        hospital = self._hospital()
        check_settings(task.settings, hospital.job.digest())
        if kind == TRAIN:
            faults.reach(f"train-{task.round + 1}")
            reply = self._train(hospital, task, should_stop)
            return encode_reply(reply, halved=hospital.job.federation.halved(models.parameter_names(hospital.network)))
        if kind == HEAD:
            return encode_statistics(hospital.head_statistics(task))
        return encode_validation(hospital.validate(task))
