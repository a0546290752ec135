"""A chain on the server's disk: a run and its resumptions in one folder."""

import shutil
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.results import RunResult, RunResults, RunSetup, write_result
from fedmr_med.files import journal, locked
from fedmr_med.methods.label import label_of
from fedmr_med.models.model_file import (
    LINEAGE,
    SET_THRESHOLDS,
    as_list,
    read_tensors,
    save_model,
    sha256_of,
    write_tensors,
)
from fedmr_med.models.provenance import Provenance
from fedmr_med.server.checkpoint import load_checkpoint, save_checkpoint
from fedmr_med.server.kept_head import KeptHead
from fedmr_med.server.owner import Owner, claim
from fedmr_med.server.state import GlobalState, initial_state, weights_sent
from fedmr_med.wire.codec import Message

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

    Attributes:
        kept: what its closed-form head is made of, where the job keeps that.
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
        self.kept = KeptHead.of(folder)
        self._lock = ExitStack()
        self._owner: Owner | None = None
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
            self._owner = owner
            state = self._initial()
            if self.job.federation.resume_from == "previous":
                state = self._go_back(state)
            elif self.checkpoint.exists():
                state = self._loaded(state)
        except BaseException:
            self.close()
            raise
        self._prune(state)
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
                    prototypes=as_list(candidate.prototypes),
                    **_fitted(state.history),
                    **_lineage(state.history),
                )
        save_checkpoint(self.checkpoint, state, self.job, previous=self.previous, provenance=self._provenance)
        self._prune(state)
        self._previous = state

    def keep_head(self, state: GlobalState, kept: Iterable[tuple[str, Message]]) -> GlobalState:
        """Return a state, still to be saved, that names the files in which its head's statistics are kept now.

        Raises:
            CheckpointError: they could not be written.
        """
        head = state.history.head
        if head is None or head.round != state.round:
            return state
        files = {site: self.kept.write(site, message) for site, message in kept}
        record = head.model_copy(update={"kept": files})
        return replace(state, history=state.history.model_copy(update={"head": record}))

    def beside(self, chain: str) -> Path:
        """Return the folder of another chain of this server, whose person is the one who opened this one.

        Raises:
            CheckpointError: there is none, or it is somebody else's.
        """
        folder = self.folder.parent / chain
        if not (folder / CHECKPOINT).exists():
            raise CheckpointError(f"This server has no chain {chain}.", code="chain.unknown")
        claim(folder, self._owner, begun=True)
        return folder

    def _prune(self, state: GlobalState) -> None:
        """Delete the statistics that the head of a state is not made of, such as those of a site that left."""
        head = state.history.head
        self.kept.prune(((head and head.kept) or {}).values())

    def leave(self, state: GlobalState) -> None:
        """Save the state after a site left, and delete the checkpoints from before: no way back brings it in again.

        Raises:
            CheckpointError: see :meth:`save`.
        """
        self.save(state)
        for name in (PREVIOUS, DAMAGED):
            (self.folder / name).unlink(missing_ok=True)
        if (best := self.folder / BEST_MODEL).exists():  # of an earlier round it was not written anew
            write_tensors(best, read_tensors(best) | _lineage(state.history))
        if (self.folder / RESULTS).exists():
            self.write_results(state)
        left = state.history.withdrawn[-1]
        exact = "yes" if left.retrain_from is None else f"no, retrain from round {left.retrain_from}"
        self.note("withdraw", site=left.site, exact=exact, models=" ".join(left.models))

    def released(self, since: int) -> tuple[str, ...]:
        """Return the SHA-256 of the model files that left with jobs from so many rounds on, and of the last one.

        Raises:
            ConfigError: the journal cannot be read.
        """
        notes = [entry for entry in journal.read(self.folder / EVENTS).entries if entry["event"] == "release"]
        found = [str(entry["model"]) for entry in notes if int(entry["round"]) >= since]
        best = self.folder / BEST_MODEL
        last = [sha256_of(best)] if best.exists() else []
        return tuple(dict.fromkeys([*(digest for digest in found if digest not in last), *last]))

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
        """Copy the files that are there, and write down which model leaves with them."""
        best, state = self.folder / BEST_MODEL, self._previous
        if best.exists() and state is not None and state.history.best is not None:
            self.note("release", model=sha256_of(best), round=str(state.history.best.round))
        for name in (CHECKPOINT, BEST_MODEL, RESULTS, EVENTS):
            if (self.folder / name).exists():
                shutil.copy2(self.folder / name, folder / name)

    def close(self) -> None:
        """Let go of the chain."""
        self._lock.close()


def _lineage(history: History) -> dict[str, Any]:
    """Return what a model file says of the sites that left; nothing where none did."""
    left = [withdrawal.model_dump(mode="json") for withdrawal in history.withdrawn]
    return {LINEAGE: left} if left else {}


def _fitted(history: History) -> dict[str, Any]:
    """Return what a model file says of the best model's probabilities, as far as sites tell.

    That is the temperature that fits them to the images that choose, and the thresholds of its sets.
    """
    evaluation = history.best_evaluation
    figures = evaluation.pooled_figures if evaluation else None
    if figures is None:
        return {"temperature": None}
    sets = {SET_THRESHOLDS: figures.set_thresholds} if figures.set_thresholds else {}
    return {"temperature": figures.temperature, **sets}


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
