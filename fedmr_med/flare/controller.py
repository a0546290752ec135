"""The controller: runs the rounds of a chain over FLARE's tasks."""

import shutil
from pathlib import Path

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
from fedmr_med.exchange.loop import run
from fedmr_med.exchange.plan import plan
from fedmr_med.exchange.transport import Stopped
from fedmr_med.flare import context
from fedmr_med.flare.progress import Progress
from fedmr_med.flare.quiet import quiet_simulator
from fedmr_med.flare.transport import FlareTransport
from fedmr_med.jobs.folder import INITIAL_MODEL
from fedmr_med.process import set_threads
from fedmr_med.report.lines import refused_line
from fedmr_med.report.summary import print_summary
from fedmr_med.server.chain import BEST_MODEL, Chain
from fedmr_med.server.state import GlobalState
from fedmr_med.server.stopping import stop_reason


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
        self._progress: Progress | None = None

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
        transport = FlareTransport(self, self._job.federation, abort_signal, fl_ctx)
        self._progress = Progress(self, self._job, chain, state, transport, fl_ctx)
        fl_ctx.set_prop(AppConstants.NUM_ROUNDS, rounds, private=True, sticky=True)
        self.fire_event(AppEventType.TRAINING_STARTED, fl_ctx)
        try:
            self._state = state = run(plan(self._job), state, transport, chain, self._progress.hear)
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
            progress = None if self._progress is None else self._progress.values()
            if collector is not None and progress is not None:
                collector.add_info("progress", progress)
