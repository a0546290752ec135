"""The executor: decodes a task, lets the hospital answer it, encodes the reply."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fedmr_med.errors import FedMRError
from fedmr_med.flare import context, messages
from fedmr_med.flare.quiet import quiet_screen
from fedmr_med.flare.tracking import figures, track
from fedmr_med.flare.turns import turn
from fedmr_med.privacy.refusals import code_of
from fedmr_med.process import available_cores, kept_memory, set_threads
from fedmr_med.site.engine import OpenHospital, Site
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.training import Aborted
from fedmr_med.site.view import SiteView
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import SUBMIT_MODEL, TASKS
from fedmr_med.wire.messages import SiteReply, TrainTask


def answered(
    component: FLComponent, site: Site, kind: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
) -> Shareable:
    """Let a site answer a task. An error that the site can fix is logged and reported by return code alone."""
    try:
        message = Message({}) if kind == SUBMIT_MODEL else messages.to_message(shareable)
        answer = site.answer(kind, message, lambda: bool(abort_signal.triggered))
        return messages.to_shareable(answer, kind)
    except Aborted:
        return make_reply(ReturnCode.TASK_ABORTED)
    except FedMRError as e:
        # The message may name files of this site, so it stays in the site's own log and journal.
        component.log_error(fl_ctx, str(e), fire_event=False)
        context.note(fl_ctx, reason=str(e))
        return make_reply(code_of(e))
    finally:
        context.note(fl_ctx, weights=site.weights)
        context.keep_view(fl_ctx, site.view)


class FedMRExecutor(Executor):
    """Answers ``train``, ``validate``, ``head`` and ``secure``; ``submit_model`` only where the site allows it."""

    def __init__(self) -> None:
        super().__init__()
        self._hospital = OpenHospital()
        self._introduced: Hospital | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keep FLARE's own lines off the screen of a simulator."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.ABOUT_TO_START_RUN and context.site_in_simulator(fl_ctx):
            quiet_screen()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer a task; see :func:`answered`."""
        if task_name not in TASKS:
            return make_reply(ReturnCode.TASK_UNKNOWN)

        def train(hospital: Hospital, task: TrainTask, should_stop: Callable[[], bool]) -> SiteReply:
            reply = hospital.train(task, should_stop)
            track(self, figures(reply), reply.round, fl_ctx)
            return reply

        site = Site(context.site_views(fl_ctx), lambda view: self._open(view, fl_ctx), train)
        with self._turn(fl_ctx), kept_memory():
            return answered(self, site, task_name, shareable, fl_ctx, abort_signal)

    def _turn(self, fl_ctx: FLContext) -> AbstractContextManager[None]:
        """Let simulated sites work one per core at a time."""
        if not context.site_in_simulator(fl_ctx):
            return nullcontext()
        return turn(context.root_folder(fl_ctx).parent / ".turns", fl_ctx.get_identity_name(), available_cores())

    def _open(self, view: SiteView, fl_ctx: FLContext) -> Hospital:
        # One thread per client process in the simulator: it runs several of them side by side.
        simulated = context.site_in_simulator(fl_ctx)
        set_threads(default=1 if simulated else None)
        hospital = self._hospital(view)
        if hospital is not self._introduced and not (simulated and context.introduced(fl_ctx)):
            self._introduce(hospital, view.origin, fl_ctx)
        self._introduced = hospital
        return hospital

    def _introduce(self, hospital: Hospital, origin: str, fl_ctx: FLContext) -> None:
        """Say what this site works with: once per process, in the simulator once per run."""
        if hospital.data.is_demo and not context.site_in_simulator(fl_ctx):  # there the server says it for all
            self.log_warning(fl_ctx, context.DEMO_BANNER, fire_event=False)
        for warning in hospital.data.warnings:
            self.log_warning(fl_ctx, f"{hospital.name}: {warning}", fire_event=False)
        names = hospital.job.task.class_names
        shared, statistics = (
            " ".join(name for name, yes in zip(names, mask, strict=True) if yes) or "no class"
            for mask in (hospital.releases.sums.prototype_classes(), hospital.releases.sums.statistics_classes())
        )
        kind = "generated images (DEMO)" if hospital.data.is_demo else "images"
        skipped = f", {len(hospital.data.skipped)} unreadable" if hospital.data.skipped else ""
        head = "" if statistics == shared else f", and statistics for a closed-form head of {statistics}"
        held = [name for name, count in zip(names, hospital.counts, strict=True) if count]
        self.log_info(
            fl_ctx,
            f"{hospital.name}: {len(hospital.data.train)} training and {len(hospital.data.test)} test {kind}{skipped}, "
            f"classes {' '.join(held)}; shares the prototypes {'' if head else 'and head statistics '}of {shared}{head}"
            f"; settings: {origin}",
            fire_event=False,
        )
