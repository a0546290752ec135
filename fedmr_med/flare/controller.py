"""The controller: ScatterAndGather with a quorum, client sampling by seed, and a last evaluation."""

from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.bcast_manager import _KEY_MIN_RESPS
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.model import ModelLearnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.scatter_and_gather import ScatterAndGather
from nvflare.widgets.info_collector import InfoCollector

from fedmr_med import faults
from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.flare import context
from fedmr_med.flare.generator import from_learnable, to_learnable
from fedmr_med.flare.persistor import CHECKPOINT, chain_folder
from fedmr_med.metrics import Scores
from fedmr_med.process import set_threads
from fedmr_med.report.summary import print_summary
from fedmr_med.server.aggregation import evaluation
from fedmr_med.server.sampling import draw_sites
from fedmr_med.wire import codec as wire


class FedMRController(ScatterAndGather):
    """Runs the chain's remaining rounds, scores the last model, and prints the summary.

    All settings come from the job's ``federation`` section.
    """

    def __init__(self, aggregator_id: str = "aggregator", persistor_id: str = "persistor"):
        super().__init__(
            aggregator_id=aggregator_id,
            persistor_id=persistor_id,
            shareable_generator_id="shareable_generator",
            snapshot_every_n_rounds=0,
        )
        self._global_weights: ModelLearnable
        self._job: JobConfig
        self._scores: dict[str, Scores] = {}

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Read the job, load the chain's state, and set how many rounds remain."""
        try:
            set_threads(default=1 if context.server_in_simulator(fl_ctx) else None)
            self._job = job = context.server_job(fl_ctx)
            self._min_clients = job.federation.min_sites
            self._train_timeout = job.federation.timeout_seconds
            self._wait_time_after_min_received = job.federation.grace_seconds
            super().start_controller(fl_ctx)
        except FedMRError as e:
            self.system_panic(str(e), fl_ctx)
            return
        self._start_round = from_learnable(self._global_weights).round
        self._num_rounds = max(job.federation.rounds - self._start_round, 0)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the remaining rounds, then score the final model and print what came out."""
        faults.reach("start")
        super().control_flow(abort_signal, fl_ctx)
        if abort_signal.triggered or from_learnable(self._global_weights).round < self._job.federation.rounds:
            return
        self._score_final_model(abort_signal, fl_ctx)
        if not abort_signal.triggered:
            state = from_learnable(self._global_weights)
            checkpoint = chain_folder(fl_ctx, self._job) / CHECKPOINT
            print_summary(state, self._job, checkpoint, demo=context.simulated_demo(fl_ctx))

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Answer FLARE's question for statistics, which is how a coordinator watches the rounds."""
        super().handle_event(event_type, fl_ctx)
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            collector = fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR)
            if collector is not None and self._phase != AppConstants.PHASE_INIT:
                collector.add_info("progress", self._progress())

    def _progress(self) -> dict[str, Any]:
        """Return round, hospitals in and out, metric and time left, as plain values."""
        state, rounds = from_learnable(self._global_weights), self._job.federation.rounds
        answered, refused = self.aggregator.standing()
        scored = [evaluation.pooled for evaluation in state.history.evaluations if evaluation.pooled]
        seconds = [record.seconds for record in state.history.rounds]
        return {
            "round": state.round,
            "rounds": rounds,
            "answered": answered,
            "waiting": sorted({client.name for client in self._engine.get_clients()} - set(answered) - set(refused)),
            "refused": refused,
            "balanced_accuracy": scored[-1].balanced_accuracy if scored else None,
            "seconds_left": (rounds - state.round) * sum(seconds) / len(seconds) if seconds else None,
        }

    def broadcast_and_wait(self, task: Task, fl_ctx: FLContext, **options: Any) -> None:
        """Send the train task to this round's draw of sites, other tasks to all."""
        if task.name == self.train_task_name and self._job.federation.sites_per_round:
            options["targets"] = draw_sites(
                (client.name for client in self._engine.get_clients()),
                self._job.federation.sites_per_round,
                seed=self._job.seed,
                round_number=self._current_round,
            )
            self._current_num_targets = len(options["targets"])
            options["min_responses"] = min(self._min_clients, self._current_num_targets)
        super().broadcast_and_wait(task=task, fl_ctx=fl_ctx, **options)

    def _process_train_result(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Take a reply. FLARE counts every answer towards the quorum; one that is of no use must not count."""
        if not self._accept_train_result(client_task.client.name, client_task.result, fl_ctx):
            client_task.task.props[_KEY_MIN_RESPS] += 1
        client_task.result = None

    def _accept_train_result(
        self, client_name: str, result: Shareable, fl_ctx: FLContext, is_unknown_task: bool = False
    ) -> bool:
        """Refuse a reply in another hospital's name: FLARE authenticates the sender, not the name in the message."""
        named, code = fl_ctx.get_peer_context().get_identity_name(), result.get_return_code()
        if named != client_name:
            self.aggregator.refuse(client_name, f"it calls itself {named!r}", fl_ctx)
            return False
        if code != ReturnCode.OK and not is_unknown_task:
            self.aggregator.refuse(client_name, f"it answered {code}", fl_ctx)
        accepted: bool = super()._accept_train_result(client_name, result, fl_ctx, is_unknown_task)
        return accepted

    def _score_final_model(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """The rounds score each model they start from; this scores the one the last round made."""
        self._scores = {}
        task = Task(
            name=AppConstants.TASK_VALIDATION,
            data=self.shareable_gen.learnable_to_shareable(self._global_weights, fl_ctx),
            timeout=self._train_timeout,
            result_received_cb=self._take_scores,
        )
        self.broadcast_and_wait(
            task=task,
            fl_ctx=fl_ctx,
            min_responses=self._min_clients,
            wait_time_after_min_received=self._wait_time_after_min_received,
            abort_signal=abort_signal,
        )
        if abort_signal.triggered:
            return
        state = from_learnable(self._global_weights)
        history = state.history.with_evaluation(evaluation(state.round, self._scores))
        self._global_weights = to_learnable(state.scored(history))
        self.persistor.save(self._global_weights, fl_ctx)

    def _take_scores(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        site, result = client_task.client.name, client_task.result
        try:
            if result.get_return_code() != ReturnCode.OK:
                raise WireError(f"return code {result.get_return_code()}")
            scores = wire.decode_validation(result, self._job.task.num_classes)
        except WireError as e:
            self.log_warning(fl_ctx, f"{site} did not score the final model: {e}", fire_event=False)
            return
        if scores is not None:
            self._scores[site] = scores
