"""What a report can be about: finds the results below a folder, and reads them."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmr_med.data.flamby_isic import DIAGNOSES
from fedmr_med.errors import FedMRError, ResultsError
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.results import RunResult, RunResults, read_result
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.files import journal
from fedmr_med.models.model_file import read_tensors
from fedmr_med.privacy.findings import Audit

RESULTS, STUDY, CHECKPOINT, EVENTS = "results.json", "study.json", "checkpoint.pt", "events.jsonl"
AUDIT, ATTACKS = "released.jsonl", "audit.json"

_PLACES = ("", "server/chains/*/", "chains/*/", "*/", "*/*/", "*/*/*/", "*/*/*/*/")


@dataclass(frozen=True)
class ChainRun:
    """A run and its resumptions, with what the server kept of them.

    Attributes:
        place: folder of its results.
        result: with its history.
        settings: the job, as YAML; "" if there is no checkpoint to read it from.
        distances: (C, C) between the prototypes, None for a class without one.
        ages: rounds since somebody shared each prototype; None for a class without one.
        events: what happened beside the rounds, such as a reply that came too late.
    """

    place: Path
    result: RunResult
    settings: str = ""
    distances: tuple[tuple[float | None, ...], ...] = ()
    ages: tuple[int | None, ...] = ()
    events: tuple[dict[str, Any], ...] = ()

    @property
    def history(self) -> History:
        """The rounds and evaluations."""
        return self.result.history or History()

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; their numbers where the results do not name them."""
        found = self.final.pooled_figures if self.final else None
        return self.result.class_names or tuple(f"class {label}" for label in range(len(found.classes) if found else 0))

    def spelled(self, name: str) -> str:
        """Return the name of a class with the diagnosis that it stands for, where that is known."""
        diagnosis = DIAGNOSES.get(name) if self.result.dataset == "isic2019" else None
        return f"{name} {diagnosis}" if diagnosis else name

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """Everybody who took part, was refused, or scored a model."""
        past = self.history
        found = past.sites | {site for record in past.rounds for site in record.refused}
        return tuple(sorted(found | {site for e in past.evaluations for site in (*e.sites, *e.held_back)}))

    @cached_property
    def final(self) -> Evaluation | None:
        """The scores of the model that is kept as the best; of the last one, if none is or its scores are not kept."""
        past = self.history
        return past.best_evaluation or (past.evaluations[-1] if past.evaluations else None)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Rounds done and balanced accuracy of all hospitals together, of each model that has one."""
        scores = [(e.round, e.pooled.balanced_accuracy) for e in self.history.evaluations if e.pooled]
        return sorted((float(done), value) for done, value in scores if value is not None)

    @property
    def scored(self) -> list[Evaluation]:
        """The scores of every model, that with the closed-form head last."""
        past = self.history
        return [*sorted(past.evaluations, key=lambda e: e.round), *([past.of_head] if past.of_head else [])]


@dataclass(frozen=True)
class Comparison:
    """Runs of a comparison of methods, without their histories."""

    place: Path
    runs: tuple[RunResult, ...]


@dataclass(frozen=True)
class Tables:
    """Tables of a study of the paper or of a comparison with FLamby: titles with rows, and what is said about them."""

    place: Path
    title: str
    tables: tuple[tuple[str, tuple[dict[str, Any], ...]], ...]
    notes: tuple[str, ...] = ()
    demo: bool = False


@dataclass(frozen=True)
class AuditLog:
    """What has left a hospital, by its own journal."""

    place: Path
    entries: tuple[dict[str, Any], ...]
    problems: tuple[str, ...]
    head: str


@dataclass(frozen=True)
class Attacks:
    """What ``fedmr-med privacy audit`` found."""

    place: Path
    audit: Audit


Source = ChainRun | Comparison | Tables | AuditLog | Attacks


def find_sources(place: Path) -> list[Source]:
    """Return what a folder or file holds: a simulator workspace, a downloaded job, a comparison, a kit, ...

    Raises:
        ResultsError: nothing of it can be reported on, or a file is damaged.
    """
    if place.is_file():
        return _read(place)
    for pattern in _PLACES:
        names = (STUDY, RESULTS, AUDIT, ATTACKS)
        paths = sorted(path for name in names for path in place.glob(f"{pattern}{name}") if path.is_file())
        # A study has a file of results as well, which its tables sum up.
        studies = {path.parent for path in paths if path.name == STUDY}
        kept = [path for path in paths if path.name != RESULTS or path.parent not in studies]
        if kept:
            return [source for path in kept for source in _read(path)]
    looked = f"{RESULTS}, {STUDY}, {AUDIT} or {ATTACKS}"
    raise ResultsError(
        f"{place} holds nothing to report on: no {looked} is in it or in a folder of it.", code="results.empty"
    )


def _read(path: Path) -> list[Source]:
    if path.suffix == ".jsonl":
        log = journal.read(path)
        return [AuditLog(path.parent, tuple(log.entries), tuple(log.problems), log.head)]
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        keys = content.keys()
    except (OSError, ValueError, AttributeError) as e:
        raise ResultsError(f"{path} cannot be read: {str(e).splitlines()[0]}.", code="file.unreadable") from e
    if "findings" in keys:
        return [Attacks(path.parent, read_result(path, Audit))]
    if "tables" in keys:
        tables = tuple((str(table["title"]), tuple(table["rows"])) for table in content["tables"])
        notes = (*content.get("differs", ()), *content.get("notes", ()))
        title = f"{content['title']} ({content['budget']} budget)"
        return [Tables(path.parent, title, tables, notes, bool(content.get("stand_ins")))]
    if "rows" in keys:
        request = content.get("request", {})
        notes = (*content.get("notes", ()), *(f"failed: {line}" for line in content.get("failed", ())))
        metric = next((name for name in _FLAMBY_METRICS for row in content["rows"] if name in row), "balanced_accuracy")
        rows = tuple({key: row.get(key) for key in (*_FLAMBY_COLUMNS, metric)} for row in content["rows"])
        demo = str(request.get("data")) == "demo"
        return [Tables(path.parent, "Comparison with FLamby", ((_FLAMBY_METRICS[metric], rows),), notes, demo)]
    runs = read_result(path, RunResults).runs
    if not runs:
        raise ResultsError(f"{path} holds no run.", code="results.empty")
    if all(run.history is not None for run in runs):
        return [_chain(path, run) for run in runs]  # a chain, or a model that was scored beside a baseline
    return [Comparison(path.parent, runs)]


_FLAMBY_COLUMNS = ("method", "source", "bn", "test", "seed")
_FLAMBY_METRICS = {
    "balanced_accuracy": "Balanced accuracy",
    "accuracy": "Accuracy",
    "auc": "Area under the ROC curve",
}


def _chain(path: Path, result: RunResult) -> ChainRun:
    """Read what lies beside a chain's results; a checkpoint that cannot be read costs its two sections alone."""
    folder = path.parent
    events = journal.read(folder / EVENTS).entries if (folder / EVENTS).exists() else ()
    try:
        content = read_tensors(folder / CHECKPOINT) if (folder / CHECKPOINT).exists() else {}
        distances, ages = _prototypes(content)
    except (FedMRError, ValueError, TypeError, IndexError):
        content, distances, ages = {}, (), ()
    return ChainRun(folder, result, str(content.get("job", "")), distances, ages, tuple(events))


def _prototypes(content: dict[str, Any]) -> tuple[tuple[tuple[float | None, ...], ...], tuple[int | None, ...]]:
    """Return the distances between the prototypes of a checkpoint, and their ages."""
    if "prototypes" not in content:
        return (), ()
    means, available, age = content["prototypes"]
    known = available.tolist()
    apart = (means[:, None] - means[None]).norm(dim=-1).tolist()
    distances = tuple(
        tuple(value if known[i] and known[j] else None for j, value in enumerate(row)) for i, row in enumerate(apart)
    )
    return distances, tuple(int(years) if there else None for years, there in zip(age.tolist(), known, strict=True))
