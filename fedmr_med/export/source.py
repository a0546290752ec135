"""What an exporter works from: a model file, and the results of the run that made it."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from fedmr_med.errors import ResultsError
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.results import RunResult, RunResults, read_result
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.models.model_file import SavedModel, load_model, sha256_of

RESULTS = "results.json"


@dataclass(frozen=True)
class Source:
    """A model to export: what its file holds, the file's SHA-256, and the results of its run where they are at hand."""

    saved: SavedModel
    digest: str
    run: RunResult | None = None

    @classmethod
    def open(cls, model: Path, results: Path | None = None, *, allow_code: bool = False) -> "Source":
        """Read a model file, and the results: those named, or ``results.json`` beside it if it is there.

        Raises:
            CheckpointError: the model cannot be read.
            ResultsError: the results cannot be read, or hold no run.
        """
        saved = load_model(model, allow_code=allow_code)
        digest = sha256_of(model)
        path = results or model.parent / RESULTS
        if results is None and not path.exists():
            return cls(saved, digest)
        runs = read_result(path, RunResults).runs
        if not runs:
            raise ResultsError(f"{path} holds no run.", code="results.empty")
        return cls(saved, digest, runs[0])

    @property
    def is_demo(self) -> bool:
        """Whether generated pictures stood in for data, as the model file or the results tell."""
        return self.saved.is_demo or bool(self.run and self.run.demo)

    @property
    def provenance(self) -> JsonValue:
        """Where the model comes from, as plain values; None where its file is of an earlier version."""
        return None if self.saved.provenance is None else self.saved.provenance.model_dump(mode="json")

    @property
    def preparation(self) -> JsonValue:
        """What pictures go through first, as plain values; None where they are taken as they are."""
        preparation = self.saved.job.task.preparation
        return None if preparation is None else preparation.model_dump(mode="json")

    @property
    def history(self) -> History:
        """What the results tell of the rounds; empty where they do not."""
        return (self.run and self.run.history) or History()

    @property
    def evaluation(self) -> Evaluation | None:
        """The scores of this very model; None where the results do not have them."""
        history = self.history
        if self.saved.about.get("closed_form_head"):
            head = history.head
            return head.evaluation if head is not None and head.round == self.saved.round else None
        return next((e for e in history.evaluations if e.round == self.saved.round), None)
