"""A chain on the server's disk: a run and its resumptions in one folder."""

import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.results import RunResult, RunResults, RunSetup, write_result
from fedmr_med.files import journal, locked
from fedmr_med.methods.label import label_of
from fedmr_med.models.model_file import as_list, save_model
from fedmr_med.models.provenance import Provenance
from fedmr_med.server.checkpoint import load_checkpoint, save_checkpoint
from fedmr_med.server.owner import Owner, claim
from fedmr_med.server.state import GlobalState, initial_state, weights_sent

CHECKPOINT, BEST_MODEL, RESULTS, EVENTS = "checkpoint.pt", "best_model.pt", "results.json", "events.jsonl"
PREVIOUS, DAMAGED = "checkpoint.previous.pt", "checkpoint.damaged.pt"


class Chain:
    """The files of a chain, for one job at a time.

    The process of a job that was given up can outlive it, and must not write into the chain that its successor has
    taken over.

    Args:
        folder: holds checkpoint, best model, results, its owner's name, and a journal of events.
        job: the settings of the job that works on it.
        id: the name under which sites keep what belongs to it; "" takes the job's, or the folder's name.
        initial_model: a file with the weights to start from; None takes the seeded or pretrained ones.
        demo: whether all sites are known to work on generated pictures; results and model files then say so.
    """

    def __init__(
        self,
        folder: Path,
        job: JobConfig,
        *,
        id: str = "",
        initial_model: Path | None = None,
        demo: bool = False,
    ):
        self.folder, self.job = folder, job
        self.id = id or job.chain or folder.name
        self._demo = demo
        self._provenance = Provenance.of(job, demo=demo)
        self._initial_model = initial_model
        self._lock = ExitStack()
        self._previous: GlobalState | None = None

    @property
    def checkpoint(self) -> Path:
        """The file to resume from."""
        return self.folder / CHECKPOINT

    @property
    def previous(self) -> Path:
        """The checkpoint before that."""
        return self.folder / PREVIOUS

    def open(self, patience: float = 30, owner: Owner | None = None) -> GlobalState:
        """Take the chain over and return its state: the checkpoint's if there is one, else the initial one.

        With ``federation.resume_from: previous`` it goes back to the checkpoint before the last one, which is kept
        aside.

        Args:
            patience: seconds to wait for another job that is about to let go of the chain.
            owner: who submitted the job; None where nobody does.

        Raises:
            CheckpointError: the chain is somebody else's, another job is at work on it, or its checkpoint is damaged
                or does not fit the job; the message says whether the one before is good.
        """
        try:
            self._lock.enter_context(locked(self.folder / "lock", patience=patience))
        except TimeoutError as e:
            raise CheckpointError(
                f"Another job is at work on the chain {self.folder.name}; stop it first.", code="chain.in-use"
            ) from e
        try:
            claim(self.folder, owner, begun=self.checkpoint.exists())
            state = self._initial()
            if self.job.federation.resume_from == "previous":
                state = self._go_back(state)
            elif self.checkpoint.exists():
                state = self._loaded(state)
        except BaseException:
            self.close()
            raise
        self._previous = state
        return state

    def _initial(self) -> GlobalState:
        """Return the state to start from, if its weights are those that the job names, and write their digest down."""
        state, named = initial_state(self.job, self._initial_model), self.job.model.weights
        weights = weights_sent(state, self.job)
        if weights != named and (named is not None or self._initial_model is not None):
            raise CheckpointError(
                f"The job starts from weights with SHA-256 {weights}; model.weights has {named or 'none'}.",
                code="weights.other",
                key="model.weights",
            )
        if not self.checkpoint.exists():
            self.note("start", weights=weights)
        return state

    def _loaded(self, initial: GlobalState) -> GlobalState:
        """Read the checkpoint, or say which round an older one could take the chain back to."""
        try:
            return load_checkpoint(self.checkpoint, self.job, initial)
        except CheckpointError as e:
            try:
                older = load_checkpoint(self.previous, self.job, initial)
            except CheckpointError:
                raise e from None
            raise e.reworded(
                f"{e} The one before it is good: `fedmr-med deploy resume {self.folder.name} --from-previous` "
                f"goes back to round {older.round}."
            ) from e

    def _go_back(self, initial: GlobalState) -> GlobalState:
        """Put the previous checkpoint in the place of the last one, and return its state."""
        state = load_checkpoint(self.previous, self.job, initial)
        if self.checkpoint.exists():
            shutil.copy2(self.checkpoint, self.folder / DAMAGED)
        shutil.copy2(self.previous, self.folder / f".{CHECKPOINT}.tmp")
        (self.folder / f".{CHECKPOINT}.tmp").replace(self.checkpoint)
        return state

    def save(self, state: GlobalState) -> None:
        """Write the model that is kept if it is a new one, then the checkpoint.

        Raises:
            CheckpointError: a file could not be written; what was there before stays.
        """
        best = state.history.best
        # A model is scored in the round after the one that made it, so the best may be the previous one.
        for candidate in (self._previous, state):
            if best and candidate and candidate.round == best.round and (not best.head or candidate.head):
                save_model(
                    self.folder / BEST_MODEL,
                    (candidate.with_head() if best.head else candidate.leaving()).whole_model,
                    self.job,
                    round_number=best.round,
                    **({} if best.balanced_accuracy is None else {"balanced_accuracy": best.balanced_accuracy}),
                    chosen="last" if best.balanced_accuracy is None else "best",
                    chosen_on="validation" if self.job.train.validation else "test",
                    provenance=self._provenance,
                    closed_form_head=best.head,
                    temperature=_temperature(state.history),
                    prototypes=as_list(candidate.prototypes),
                )
        save_checkpoint(self.checkpoint, state, self.job, previous=self.previous, provenance=self._provenance)
        self._previous = state

    def note(self, event: str, **details: str) -> None:
        """Write down what happened beside the rounds, such as a reply that came too late."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        journal.append(self.folder / EVENTS, {"time": now, "event": event, **details})

    def write_results(self, state: GlobalState) -> None:
        """Write scores and byte counts of all rounds."""
        setup = setup_of(self.job, label_of(self.job), demo=self._demo)
        run = RunResult.of(setup, state.history, whole=True)
        write_result(self.folder / RESULTS, RunResults(runs=(run,)))

    def copy_to(self, folder: Path) -> None:
        """Copy the files that are there."""
        for name in (CHECKPOINT, BEST_MODEL, RESULTS, EVENTS):
            if (self.folder / name).exists():
                shutil.copy2(self.folder / name, folder / name)

    def close(self) -> None:
        """Let go of the chain."""
        self._lock.close()


def _temperature(history: History) -> float | None:
    """Return the temperature that fits the best model's probabilities to the images that choose, if sites tell."""
    evaluation = history.best_evaluation
    figures = evaluation.pooled_figures if evaluation else None
    return figures.temperature if figures else None


def setup_of(job: JobConfig, label: str, **others: Any) -> RunSetup:
    """Return what results say of a run: what its job says, and what is known besides."""
    return RunSetup(
        dataset=job.task.dataset,
        split=job.task.split,
        method=job.method.name,
        seed=job.seed,
        name=job.name,
        label=label,
        model=job.model.name,
        options=job.method.options,
        class_names=job.task.class_names,
        **others,
    )
