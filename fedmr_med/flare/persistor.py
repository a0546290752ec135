"""The persistor: one folder per chain with checkpoint, best model and results, outside what FLARE cleans up."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.model import ModelLearnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor

from fedmr_med import methods, models
from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.files import locked, write_text
from fedmr_med.flare import context
from fedmr_med.flare.generator import from_learnable, to_learnable
from fedmr_med.network import build_network
from fedmr_med.prototypes import Prototypes
from fedmr_med.results import run_result
from fedmr_med.server.checkpoint import load_checkpoint, save_checkpoint, save_model
from fedmr_med.server.state import GlobalState

CHECKPOINT, BEST_MODEL, RESULTS = "checkpoint.pt", "best_model.pt", "results.json"


def initial_state(job: JobConfig) -> GlobalState:
    """Return the global state before the first round: the seeded or pretrained model, no prototypes."""
    network = build_network(job, pretrained=True)
    model, parameters = models.state_arrays(network), models.parameter_names(network)
    server = methods.build(job.method).server()
    return GlobalState(
        model=model,
        parameters=parameters,
        prototypes=Prototypes.none(job.task.num_classes, network.feature_size),
        method=server.initial_state({name: array for name, array in model.items() if name in parameters}),
    )


def chain_folder(fl_ctx: FLContext, job: JobConfig) -> Path:
    """Return the folder of the job's chain on this server."""
    return context.root_folder(fl_ctx) / "chains" / context.chain_id(job, fl_ctx)


class ChainPersistor(ModelPersistor):
    """Goes on from the chain's checkpoint if there is one; writes it anew after every round.

    One job at a time: the process of a job that was given up can outlive it, and must not write into the chain
    that its successor has taken over.
    """

    def __init__(self) -> None:
        super().__init__()
        self._previous: GlobalState | None = None
        self._lock = ExitStack()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """At the end of the run, leave a copy of the chain's files where FLARE fetches a job's results from."""
        if event_type == EventType.END_RUN:
            if self._previous is not None and not context.server_in_simulator(fl_ctx):
                source = chain_folder(fl_ctx, context.server_job(fl_ctx))
                run = Path(fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id()))
                for name in (CHECKPOINT, BEST_MODEL, RESULTS):
                    if (source / name).exists():
                        shutil.copy2(source / name, run / name)
            self._lock.close()

    def load_model(self, fl_ctx: FLContext) -> ModelLearnable:
        """Return the chain's state, or the initial one.

        Raises:
            CheckpointError: another job is at work on the chain, or its checkpoint does not fit the job.
        """
        job = context.server_job(fl_ctx)
        state = initial_state(job)
        path = chain_folder(fl_ctx, job) / CHECKPOINT
        try:
            self._lock.enter_context(locked(path.parent / "lock", patience=30))
        except TimeoutError as e:
            raise CheckpointError(f"Another job is at work on the chain {path.parent.name}; stop it first.") from e
        if path.exists():
            state = load_checkpoint(path, job, state)
            self.log_info(fl_ctx, f"Going on after round {state.round} from {path}", fire_event=False)
        self._previous = state
        return to_learnable(state)

    def save_model(self, model: ModelLearnable, fl_ctx: FLContext) -> None:
        """Write the best model if it is a new one, then the checkpoint, then the results."""
        job = context.server_job(fl_ctx)
        state = from_learnable(model)
        folder = chain_folder(fl_ctx, job)
        best = state.history.best
        # A model is scored in the round after the one that made it, so the best may be the previous one.
        for candidate in (self._previous, state):
            if best and candidate and candidate.round == best.round:
                about = {"round": best.round, "balanced_accuracy": best.balanced_accuracy}
                save_model(folder / BEST_MODEL, candidate.model, about)
        save_checkpoint(folder / CHECKPOINT, state, job)
        self._previous = state
        result = run_result(
            state.history,
            name=job.name,
            dataset=job.task.dataset,
            split=job.task.split,
            method=job.method.name,
            seed=job.seed,
        )
        write_text(folder / RESULTS, json.dumps({"runs": [result]}, indent=1))
