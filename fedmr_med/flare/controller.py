"""The controller: runs the rounds of a chain over FLARE's tasks."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.widgets.info_collector import InfoCollector

from fedmr_med import faults
from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.results import Evaluation
from fedmr_med.flare import context
from fedmr_med.flare.messages import TASK_HEAD, TASK_SECURE, decode_task, decode_validation, encode_task, to_message
from fedmr_med.flare.quiet import quiet_simulator
from fedmr_med.flare.secure import Take, asking
from fedmr_med.flare.tracking import figures, track, track_pooled, write_metrics
from fedmr_med.jobs.folder import INITIAL_MODEL
from fedmr_med.privacy.refusals import in_words
from fedmr_med.process import set_threads
from fedmr_med.report.lines import refused_line, round_line, runaway_line, seconds_left, site_line
from fedmr_med.report.summary import print_summary
from fedmr_med.server.chain import BEST_MODEL, Chain
from fedmr_med.server.checks import Registered
from fedmr_med.server.collect import ReplyCollector
from fedmr_med.server.head import HeadCollector, head_exchange, scored_head, wants_head, with_head
from fedmr_med.server.sampling import draw_sites
from fedmr_med.server.secure import SecureTotals
from fedmr_med.server.state import GlobalState, train_task
from fedmr_med.server.stopping import has_ended, stop_reason
from fedmr_med.wire.messages import TrainTask

POLL_SECONDS = 0.1
STEP_SECONDS = 10
"""How long a step of a secure sum may take, for each site and a dozen more: the simulator starts processes for it."""


class FedMRController(Controller):
    """Runs the chain's remaining rounds, scores the last model, and prints the summary.

    All settings come from the job's own file; what a round does is in :mod:`fedmr_med.server`.

    Args:
        best_model_filename: a copy of the best model in the server's app folder, as FLARE's own recipes leave one; ""
            makes none.
    """

    def __init__(self, best_model_filename: str = "") -> None:
        super().__init__()
        self.best_model_filename = best_model_filename
        self._job: JobConfig
        self._chain: Chain | None = None
        self._state: GlobalState | None = None
        self._collector: ReplyCollector | None = None
        self._asked, self._answered = "", set[str]()
        self._lines: dict[str, str] = {}
        self._totals: SecureTotals

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Read the job and load the chain's state."""
        simulated = context.server_in_simulator(fl_ctx)
        if simulated:
            quiet_simulator(fl_ctx)
        try:
            set_threads(default=1 if simulated else None)
            self._job = context.server_job(fl_ctx)
            initial = context.config_folder(fl_ctx) / INITIAL_MODEL
            folder = context.chain_folder(fl_ctx, self._job)
            model, demo = initial if initial.exists() else None, context.simulated_demo(fl_ctx)
            self._chain = Chain(folder, self._job, initial_model=model, demo=demo)
            self._state = self._chain.open(owner=context.submitter(fl_ctx))
        except FedMRError as e:
            self.system_panic(str(e), fl_ctx)
            return
        if context.simulated_demo(fl_ctx):
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
        self._totals = self._secure_totals(abort_signal, fl_ctx)
        fl_ctx.set_prop(AppConstants.NUM_ROUNDS, rounds, private=True, sticky=True)
        self.fire_event(AppEventType.TRAINING_STARTED, fl_ctx)
        try:
            while not has_ended(self._job, state) and not abort_signal.triggered:
                state = self._run_round(state, abort_signal, fl_ctx)
            if abort_signal.triggered:
                return
            if state.round < rounds:
                reason = stop_reason(self._job.federation.stop, state.history)
                self.log_info(fl_ctx, f"stopping after round {state.round}: {reason}", fire_event=False)
            state = self._finish(state, abort_signal, fl_ctx)
        except FedMRError as e:
            self.system_panic(str(e), fl_ctx)
            return
        if not abort_signal.triggered:
            self.fire_event(AppEventType.TRAINING_FINISHED, fl_ctx)
            print_summary(state, self._job, chain.checkpoint, demo=context.simulated_demo(fl_ctx))
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
            if collector is not None and self._asked:
                collector.add_info("progress", self._progress(fl_ctx))

    def _run_round(self, state: GlobalState, abort_signal: Signal, fl_ctx: FLContext) -> GlobalState:
        """Send the task to this round's sites, collect their replies, and write the new state down."""
        job = self._job
        connected = _connected(fl_ctx)
        # FLARE forgets a site that died; FedDyn and FedDC still count what it contributed.
        self._collector = collector = ReplyCollector(job, state, num_sites=len({*connected, *state.accepted}))
        fl_ctx.set_prop(AppConstants.CURRENT_ROUND, state.round, private=True, sticky=True)
        self.fire_event(AppEventType.ROUND_STARTED, fl_ctx)
        targets = draw_sites(connected, job.federation.sites_per_round, seed=job.seed, round_number=state.round)

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            self._take_reply(collector, client_task.client.name, client_task.result, fl_ctx)
            client_task.result = None  # FLARE would hold every model until the end of the task

        task, train = self._task(state, targets, fl_ctx), AppConstants.TASK_TRAIN
        self._ask(train, self._encoded(task), targets, take, lambda: collector.has_quorum, abort_signal, fl_ctx)
        if abort_signal.triggered:
            return state
        counted, refused = collector.standing()
        summed = job.federation.sums_statistics and collector.has_quorum
        state = self._keep(collector.close(self._totals.statistics(task, counted) if summed else None), fl_ctx)
        for site, reason in state.history.rounds[-1].refused.items():
            if site not in refused:
                self.log_warning(fl_ctx, refused_line(site, reason), fire_event=False)
        track_pooled(self, state.history, fl_ctx)
        self.fire_event(AppEventType.ROUND_DONE, fl_ctx)
        self.log_info(fl_ctx, round_line(state.history, job.federation.rounds), fire_event=False)
        if warning := runaway_line(state.history):
            self.log_warning(fl_ctx, warning, fire_event=False)
        return state if has_ended(job, state) else self._exchange_head(state, abort_signal, fl_ctx)

    def _finish(self, state: GlobalState, abort_signal: Signal, fl_ctx: FLContext) -> GlobalState:
        """Score the model that the last round made, since rounds score what they start from, and make its head."""
        scored = self._evaluation(state, abort_signal, fl_ctx)
        if abort_signal.triggered:
            return state
        state = self._keep(state.scored(state.history.with_evaluation(scored)), fl_ctx)
        track_pooled(self, state.history, fl_ctx)
        return self._exchange_head(state, abort_signal, fl_ctx)

    def _exchange_head(self, state: GlobalState, abort_signal: Signal, fl_ctx: FLContext) -> GlobalState:
        """Make and score the closed-form head, where one is due."""
        if not wants_head(self._job, head_exchange(self._job), state):
            return state
        collector = HeadCollector(self._job, state)

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            site = client_task.client.name
            try:
                _check_code(client_task.result)
                collector.offer(site, to_message(client_task.result))
            except WireError as e:
                self.log_warning(fl_ctx, f"{site} has no part in the closed-form head: {e}", fire_event=False)
            client_task.result = None

        sites, needed = _connected(fl_ctx), self._job.federation.min_sites
        task = self._task(state.leaving(), sites, fl_ctx)
        data, enough = self._encoded(task), lambda: len(collector.answered) >= needed
        self._ask(TASK_HEAD, data, sites, take, enough, abort_signal, fl_ctx)
        if abort_signal.triggered:
            return state
        if self._job.federation.sums_statistics:
            made = collector.close_secure(*self._totals.head(task, collector.answered))
        else:
            made = collector.close()
        if made is None:
            return state
        scored = self._evaluation(with_head(made), abort_signal, fl_ctx)
        return state if abort_signal.triggered else self._keep(scored_head(made, scored), fl_ctx)

    def _evaluation(self, state: GlobalState, abort_signal: Signal, fl_ctx: FLContext) -> Evaluation:
        """Let all sites score the model of ``state``."""
        scores: dict[str, Scores | None] = {}
        registered = Registered.of(state.history, self._job.federation.max_samples)

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            site = client_task.client.name
            try:
                _check_code(client_task.result)
                score = decode_validation(client_task.result, self._job.task.num_classes)
                registered.check_scores(site, score)
            except WireError as e:
                self.log_warning(fl_ctx, f"{site} did not score the final model: {e}", fire_event=False)
                return
            scores[site] = score

        sites, needed = _connected(fl_ctx), self._job.federation.min_sites
        task, validate = self._task(state.leaving(), sites, fl_ctx), AppConstants.TASK_VALIDATION
        self._ask(validate, self._encoded(task), sites, take, lambda: len(scores) >= needed, abort_signal, fl_ctx)
        if self._job.federation.sums_statistics and not abort_signal.triggered:
            return self._totals.evaluation(task, sorted(scores))
        return Evaluation.of(state.round, scores)

    def _task(self, state: GlobalState, sites: Sequence[str], fl_ctx: FLContext) -> TrainTask:
        """Return what every site receives, as it decodes it: half precision rounds."""
        known = sites if self._asked else None  # sites may have lost what they kept since the last job of the chain
        content = train_task(state, self._job, context.chain_id(self._job, fl_ctx), known)
        return decode_task(self._encoded(content)) if self._job.federation.wire == "float16" else content

    def _encoded(self, task: TrainTask) -> Shareable:
        assert self._state is not None
        return encode_task(task, halved=self._job.federation.halved(self._state.parameters))

    def _secure_totals(self, abort_signal: Signal, fl_ctx: FLContext) -> SecureTotals:
        """Return the secure sums of this run."""

        def send(data: Shareable, sites: Sequence[str], take: Take, enough: Callable[[], bool]) -> None:
            seconds = STEP_SECONDS * (12 + len(sites))
            self._ask(TASK_SECURE, data, sites, take, enough, abort_signal, fl_ctx, timeout=seconds)

        def warn(reason: str) -> None:
            self.log_warning(fl_ctx, reason, fire_event=False)

        return SecureTotals(self._job, context.chain_id(self._job, fl_ctx), asking(send, warn))

    def _keep(self, state: GlobalState, fl_ctx: FLContext) -> GlobalState:
        """Write a state down, and remember it."""
        assert self._chain is not None
        self._chain.save(state)
        self._chain.write_results(state)
        write_metrics(context.run_folder(fl_ctx), self._job.name, state.history)
        self._state = state
        return state

    def _ask(
        self,
        name: str,
        data: Shareable,
        targets: Sequence[str],
        take: Take,
        enough: Callable[[], bool],
        abort_signal: Signal,
        fl_ctx: FLContext,
        timeout: int | None = None,
    ) -> None:
        """Send a task and wait for the answers: of all, or of enough and those that come in the time of grace.

        FLARE counts every answer towards its own quorum, also one that is of no use. So the quorum is counted here,
        and FLARE is asked to wait for all of them.

        Raises:
            FedMRError: there is no site to ask.
        """
        if not targets:
            raise FedMRError("No site is connected.", code="round.no-site")
        federation = self._job.federation
        seconds = federation.timeout_seconds if timeout is None else timeout
        self._asked, self._answered = name, set()
        answered = self._answered

        def take_and_note(client_task: ClientTask, fl_ctx: FLContext) -> None:
            take(client_task, fl_ctx)
            answered.add(client_task.client.name)

        task = Task(name=name, data=data, timeout=seconds, result_received_cb=take_and_note)
        self.broadcast(task=task, fl_ctx=fl_ctx, targets=list(targets), min_responses=0)
        enough_since: float | None = None
        while task.completion_status is None:
            if abort_signal.triggered:
                self.cancel_task(task, TaskCompletionStatus.ABORTED, fl_ctx)
            elif enough_since is None and enough():
                enough_since = time.monotonic()
            elif enough_since is not None and time.monotonic() - enough_since >= federation.grace_seconds:
                self.cancel_task(task, TaskCompletionStatus.OK, fl_ctx)
            time.sleep(POLL_SECONDS)

    def _take_reply(self, collector: ReplyCollector, site: str, result: Shareable, fl_ctx: FLContext) -> None:
        """Let the collector take or refuse a reply, and say which. Never raises: FLARE would give the round up."""
        named, code = fl_ctx.get_peer_context().get_identity_name(), result.get_return_code()
        try:
            # FLARE authenticates the sender, not the name in the message.
            if named != site:
                raise WireError(f"it calls itself {named!r}", code="wire.sender")
            if code != ReturnCode.OK:
                raise WireError(in_words(str(code)), code="wire.refused")
            reply = collector.offer(site, to_message(result))
        except WireError as e:
            collector.refuse(site, str(e))
            self._say(fl_ctx, site, collector.state.round, refused_line(site, str(e)), warn=True)
            return
        except Exception as e:
            collector.refuse(site, f"the reply could not be read ({type(e).__name__})")
            self.log_exception(fl_ctx, refused_line(site, repr(e)), fire_event=False)
            return
        self._say(fl_ctx, site, reply.round, site_line(reply, self._job))
        track(self, figures(reply), reply.round, fl_ctx, site=site)

    def _say(self, fl_ctx: FLContext, site: str, round_number: int, line: str, *, warn: bool = False) -> None:
        """Log a line about a site, and keep it for whoever watches; those of the round before last go."""
        (self.log_warning if warn else self.log_info)(fl_ctx, line, fire_event=False)
        kept = {key: text for key, text in self._lines.items() if int(key.split("/")[0]) >= round_number - 1}
        self._lines = kept | {f"{round_number}/{site}": line}

    def _progress(self, fl_ctx: FLContext) -> dict[str, Any]:
        """Return what is asked, round, sites in and out, metric and time left, as plain values."""
        state, rounds = self._state, self._job.federation.rounds
        assert state is not None
        answered, refused = sorted(self._answered), dict[str, str]()
        if self._asked == AppConstants.TASK_TRAIN and self._collector is not None:
            answered, refused = self._collector.standing()
        scored = [evaluation.pooled for evaluation in state.history.evaluations if evaluation.pooled]
        return {
            "asked": self._asked,
            "round": state.round,
            "rounds": rounds,
            "answered": answered,
            "waiting": sorted(set(_connected(fl_ctx)) - set(answered) - set(refused)),
            "refused": refused,
            "balanced_accuracy": scored[-1].balanced_accuracy if scored else None,
            "seconds_left": seconds_left(state.history, rounds),
            "lines": list(self._lines.values()),
        }


def _check_code(result: Shareable) -> None:
    """Raise WireError unless a site could answer."""
    if result.get_return_code() != ReturnCode.OK:
        raise WireError(in_words(str(result.get_return_code())), code="wire.refused")


def _connected(fl_ctx: FLContext) -> list[str]:
    """Return the names of the sites that FLARE is in touch with."""
    return sorted(client.name for client in fl_ctx.get_engine().get_clients())
