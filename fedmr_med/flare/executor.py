"""The executor: decodes a task, lets the hospital answer it, encodes the reply."""

from contextlib import AbstractContextManager, nullcontext

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants

from fedmr_med import faults
from fedmr_med.errors import FedMRError
from fedmr_med.flare import context, messages
from fedmr_med.flare.approval import require_approval
from fedmr_med.flare.quiet import quiet_screen
from fedmr_med.flare.tracking import figures, track
from fedmr_med.flare.turns import turn
from fedmr_med.models import parameter_names
from fedmr_med.privacy.refusals import code_of
from fedmr_med.process import available_cores, kept_memory, set_threads
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.secure import SecureSite
from fedmr_med.site.training import Aborted
from fedmr_med.wire.agreement import check_settings
from fedmr_med.wire.messages import TrainTask
from fedmr_med.wire.secure import decode_question, encode_answer

CLIENT_STATE = "client_state"


class FedMRExecutor(Executor):
    """Answers ``train``, ``validate``, ``head`` and ``secure``; ``submit_model`` only where the site allows it.

    Args:
        hospital: the site at work; None opens it from the site's own settings on the first task.
    """

    def __init__(self, hospital: Hospital | None = None):
        super().__init__()
        self.hospital = hospital
        # Whoever hands in a hospital has opened it and answers for it.
        self._asks_people = hospital is None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keep FLARE's own lines off the screen of a simulator."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.ABOUT_TO_START_RUN and context.site_in_simulator(fl_ctx):
            quiet_screen()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer a task. An error that the site can fix is logged and reported by return code alone."""
        answers = {
            AppConstants.TASK_TRAIN: self._train,
            AppConstants.TASK_VALIDATION: self._validate,
            messages.TASK_HEAD: self._head,
            messages.TASK_SECURE: self._secure,
            AppConstants.TASK_SUBMIT_MODEL: self._submit_model,
        }
        if task_name not in answers:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            if self._asks_people:
                require_approval(fl_ctx, abort_signal)
            with self._turn(fl_ctx), kept_memory():
                return answers[task_name](shareable, fl_ctx, abort_signal)
        except Aborted:
            return make_reply(ReturnCode.TASK_ABORTED)
        except FedMRError as e:
            # The message may name files of this site, so it stays in the site's own log and journal.
            self.log_error(fl_ctx, str(e), fire_event=False)
            context.note_reason(fl_ctx, str(e))
            return make_reply(code_of(e))

    def _turn(self, fl_ctx: FLContext) -> AbstractContextManager[None]:
        """Let simulated sites work one per core at a time."""
        if not context.site_in_simulator(fl_ctx):
            return nullcontext()
        return turn(context.root_folder(fl_ctx).parent / ".turns", fl_ctx.get_identity_name(), available_cores())

    def _train(self, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        hospital, task = self._open(fl_ctx), self._task(shareable, fl_ctx)
        faults.reach(f"train-{task.round + 1}")
        reply = hospital.train(task, lambda: bool(abort_signal.triggered))
        track(self, figures(reply), reply.round, fl_ctx)
        halved = hospital.job.federation.halved(parameter_names(hospital.network))
        return messages.encode_reply(reply, halved=halved)

    def _validate(self, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        task = self._task(shareable, fl_ctx)
        return messages.encode_validation(self._open(fl_ctx).validate(task))

    def _head(self, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        task = self._task(shareable, fl_ctx)
        return messages.encode_statistics(self._open(fl_ctx).head_statistics(task))

    def _secure(self, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer a step of a secure sum under the policy as it is now; the site's data is not opened for it."""
        question = decode_question(messages.to_message(shareable))
        faults.reach(f"secure-{question.step}")
        site, _ = context.site_settings(fl_ctx)
        job, name = context.client_job(fl_ctx), fl_ctx.get_identity_name()
        policy, folder = site.policy.restricted_by(job.policy), context.root_folder(fl_ctx) / CLIENT_STATE
        secure = SecureSite(name, job, policy, folder, context.identity(fl_ctx))
        return messages.to_shareable(encode_answer(secure.answer(question)))

    def _task(self, shareable: Shareable, fl_ctx: FLContext) -> TrainTask:
        """Decode a task; refuse one of other settings than this site was given: it would train something else."""
        task = messages.decode_task(shareable)
        check_settings(task.settings, self._open(fl_ctx).job.digest())
        return task

    def _submit_model(self, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        return messages.encode_model(self._open(fl_ctx).trained_model())

    def _open(self, fl_ctx: FLContext) -> Hospital:
        if self.hospital is None:
            # One thread per client process in the simulator: it runs several of them side by side.
            simulated = context.site_in_simulator(fl_ctx)
            set_threads(default=1 if simulated else None)
            site, path = context.site_settings(fl_ctx)
            name = fl_ctx.get_identity_name()
            job = context.client_job(fl_ctx)
            folder, witness = context.root_folder(fl_ctx) / CLIENT_STATE, context.witness(fl_ctx)
            self.hospital = Hospital(name, job, site, folder, witness=witness)
            if not (simulated and context.introduced(fl_ctx)):
                self._introduce(self.hospital, str(path), fl_ctx)
        return self.hospital

    def _introduce(self, hospital: Hospital, path: str, fl_ctx: FLContext) -> None:
        """Say what this site works with: once per process, in the simulator once per run."""
        if hospital.data.is_demo and not context.site_in_simulator(fl_ctx):  # there the server says it for all
            self.log_warning(fl_ctx, context.DEMO_BANNER, fire_event=False)
        for warning in hospital.data.warnings:
            self.log_warning(fl_ctx, f"{hospital.name}: {warning}", fire_event=False)
        names = hospital.job.task.class_names
        shared, statistics = (
            " ".join(name for name, yes in zip(names, mask, strict=True) if yes) or "no class"
            for mask in (hospital.shared_classes(), hospital.statistics_classes())
        )
        demo = " (generated: DEMO)" if hospital.data.is_demo else ""
        held = [name for name, count in zip(names, hospital.counts, strict=True) if count]
        self.log_info(
            fl_ctx,
            f"{hospital.name}: {len(hospital.data.train)} training and {len(hospital.data.test)} test images{demo} "
            f"({len(hospital.data.skipped)} unreadable), classes {' '.join(held)}; "
            f"shares the prototypes of {shared}, and statistics for a closed-form head of {statistics}; "
            f"settings from {path}",
            fire_event=False,
        )
