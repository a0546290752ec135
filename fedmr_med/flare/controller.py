"""The controller: runs the rounds of a chain over FLARE's tasks."""

import shutil
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.widgets.info_collector import InfoCollector

from fedmr_med import faults
from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.events import Asked, Event, Kept, Refused, Replied
from fedmr_med.exchange.loop import run
from fedmr_med.exchange.plan import Step, plan
from fedmr_med.exchange.transport import Stopped
from fedmr_med.flare import context
from fedmr_med.flare.quiet import quiet_simulator
from fedmr_med.flare.tracking import figures, track, track_pooled, write_metrics
from fedmr_med.flare.transport import FlareTransport
from fedmr_med.jobs.folder import INITIAL_MODEL
from fedmr_med.process import set_threads
from fedmr_med.report.lines import refused_line, round_line, runaway_line, seconds_left, site_line
from fedmr_med.report.summary import print_summary
from fedmr_med.server.chain import BEST_MODEL, Chain
from fedmr_med.server.state import GlobalState
from fedmr_med.server.stopping import stop_reason
from fedmr_med.wire.kinds import HEAD, SECURE, TRAIN, VALIDATE

_NO_PART = {
    VALIDATE: "did not score the model",
    HEAD: "has no part in the closed-form head",
    SECURE: "takes no part in a secure sum",
}


class FedMRController(Controller):
    """Runs the chain's remaining rounds, scores the last model, and prints the summary.

    All settings come from the job's own file; what is asked of the sites is in :mod:`fedmr_med.exchange`.

    Args:
        best_model_filename: a copy of the best model in the server's app folder, as FLARE's own recipes leave one; ""
            makes none.
    """

    def __init__(self, best_model_filename: str = "") -> None:
        super().__init__()
        self.best_model_filename = best_model_filename
        self._job: JobConfig
        self._demo = False
        self._chain: Chain | None = None
        self._state: GlobalState | None = None
        self._exchange: Exchange | None = None
        self._transport: FlareTransport | None = None
        self._lines: dict[str, str] = {}

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Read the job and load the chain's state."""
        simulated = context.server_in_simulator(fl_ctx)
        if simulated:
            quiet_simulator(fl_ctx)
        try:
            set_threads(default=1 if simulated else None)
            self._job, self._demo = context.server_job(fl_ctx)
            initial = context.config_folder(fl_ctx) / INITIAL_MODEL
            folder = context.chain_folder(fl_ctx, self._job)
            model, chain = initial if initial.exists() else None, context.chain_id(self._job, fl_ctx)
            self._chain = Chain(folder, self._job, id=chain, initial_model=model, demo=self._demo)
            self._state = self._chain.open(owner=context.submitter(fl_ctx))
        except FedMRError as e:
            self.system_panic(str(e), fl_ctx)
            return
        if self._demo:
            self.log_warning(fl_ctx, context.DEMO_BANNER, fire_event=False)
        for site in context.left_over_sites(fl_ctx):
            message = f"the job carries settings of {site}, which its meta.json does not name: they are left out"
            self.log_warning(fl_ctx, message, fire_event=False)
        if self._job.federation.resume_from == "previous":
            message = f"going back to the previous checkpoint, after round {self._state.round}"
            self.log_warning(fl_ctx, message, fire_event=False)
        elif self._state.round:
            message = f"resuming after round {self._state.round} from {self._chain.checkpoint}"
            self.log_info(fl_ctx, message, fire_event=False)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the remaining rounds, then score the final model and print what came out."""
        faults.reach("start")
        chain, state = self._chain, self._state
        if chain is None or state is None:
            return  # the controller could not start and has said why; FLARE calls this all the same
        rounds = self._job.federation.rounds
        self._transport = FlareTransport(self, self._job.federation, abort_signal, fl_ctx)
        fl_ctx.set_prop(AppConstants.NUM_ROUNDS, rounds, private=True, sticky=True)
        self.fire_event(AppEventType.TRAINING_STARTED, fl_ctx)
        try:
            state = run(plan(self._job), state, self._transport, chain, lambda event: self._hear(event, fl_ctx))
        except Stopped:
            return
        except FedMRError as e:
            self.system_panic(str(e), fl_ctx)
            return
        if state.round < rounds:
            reason = stop_reason(self._job.federation.stop, state.history)
            self.log_info(fl_ctx, f"stopped after round {state.round}: {reason}", fire_event=False)
        if not abort_signal.triggered:
            self.fire_event(AppEventType.TRAINING_FINISHED, fl_ctx)
            print_summary(state, self._job, chain.checkpoint, demo=self._demo)
            if context.server_in_simulator(fl_ctx):
                self._write_report(chain, fl_ctx)

    def _write_report(self, chain: Chain, fl_ctx: FLContext) -> None:
        """Write the page about the run into the simulator's workspace; a run does not fail for it."""
        from fedmr_med.report.document import write_report

        path = context.root_folder(fl_ctx).parent / "report.html"
        try:
            write_report([chain.folder], path)
        except (FedMRError, OSError) as e:
            self.log_warning(fl_ctx, f"no report was written: {e}", fire_event=False)
            return
        self.log_info(fl_ctx, f"report: {path}", fire_event=False)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Leave a copy of the chain's files where FLARE fetches a job's results from, and let go of the chain."""
        if self._chain is None:
            return
        if self._state is not None and not context.server_in_simulator(fl_ctx):
            self._chain.copy_to(context.run_folder(fl_ctx))
        best = self._chain.folder / BEST_MODEL
        if self.best_model_filename and best.exists():
            # A name, never a path: the job must not write elsewhere.
            shutil.copyfile(best, context.config_folder(fl_ctx).parent / Path(self.best_model_filename).name)
        self._chain.close()

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Say that a reply came too late to count."""
        reason = f"its answer to {task_name} came after the round was closed"
        self.log_warning(fl_ctx, refused_line(client.name, reason), fire_event=False)
        if self._chain is not None:
            self._chain.note("late reply", site=client.name, task=task_name)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Answer FLARE's question for statistics, which is how a coordinator watches the rounds."""
        super().handle_event(event_type, fl_ctx)
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            collector = fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR)
            if collector is not None and self._transport is not None and self._transport.asked:
                collector.add_info("progress", self._progress())

    def _hear(self, event: Event, fl_ctx: FLContext) -> None:
        """Log what happens, and tell FLARE's other components."""
        match event:
            case Asked(exchange):
                self._exchange = exchange
                if exchange.kind == TRAIN:
                    fl_ctx.set_prop(AppConstants.CURRENT_ROUND, exchange.state.round, private=True, sticky=True)
                    self.fire_event(AppEventType.ROUND_STARTED, fl_ctx)
            case Replied(reply):
                self._say(fl_ctx, reply.site, reply.round, site_line(reply, self._job))
                track(self, figures(reply), reply.round, fl_ctx, site=reply.site)
            case Refused(kind, site, reason):
                assert self._state is not None
                line = refused_line(site, reason) if kind == TRAIN else f"{site} {_NO_PART[kind]}: {reason}"
                self._say(fl_ctx, site, self._state.round, line, warn=True)
            case Kept(step, state):
                self._note(step, state, fl_ctx)

    def _note(self, step: Step, state: GlobalState, fl_ctx: FLContext) -> None:
        """Write the files that people read beside a state that is safe on disk."""
        assert self._chain is not None
        self._state = state
        self._chain.write_results(state)
        write_metrics(context.run_folder(fl_ctx), self._job.name, state.history)
        if step.kind in (TRAIN, VALIDATE) and not step.of_head:
            track_pooled(self, state.history, fl_ctx)
        if step.kind == TRAIN:
            self.fire_event(AppEventType.ROUND_DONE, fl_ctx)
            self.log_info(fl_ctx, round_line(state.history, self._job.federation.rounds), fire_event=False)
            if warning := runaway_line(state.history):
                self.log_warning(fl_ctx, warning, fire_event=False)

    def _say(self, fl_ctx: FLContext, site: str, round_number: int, line: str, *, warn: bool = False) -> None:
        """Log a line about a site, and keep it for whoever watches; those of the round before last go."""
        (self.log_warning if warn else self.log_info)(fl_ctx, line, fire_event=False)
        kept = {key: text for key, text in self._lines.items() if int(key.split("/")[0]) >= round_number - 1}
        self._lines = kept | {f"{round_number}/{site}": line}

    def _progress(self) -> dict[str, Any]:
        """Return what is asked, round, sites in and out, metric and time left, as plain values."""
        state, transport, rounds = self._state, self._transport, self._job.federation.rounds
        assert state is not None and transport is not None
        answered, refused = sorted(transport.answered), dict[str, str]()
        if self._exchange is not None and self._exchange.kind == transport.asked:
            answered, refused = self._exchange.standing()
        scored = [evaluation.pooled for evaluation in state.history.evaluations if evaluation.pooled]
        return {
            "asked": transport.asked,
            "round": state.round,
            "rounds": rounds,
            "answered": answered,
            "waiting": sorted(set(transport.sites()) - set(answered) - set(refused)),
            "refused": refused,
            "balanced_accuracy": scored[-1].balanced_accuracy if scored else None,
            "seconds_left": seconds_left(state.history, rounds),
            "lines": list(self._lines.values()),
        }
