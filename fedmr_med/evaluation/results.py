"""What a run leaves behind for people and programs: the one results schema of the toolkit.

The history of a chain is part of its checkpoint, so that a summary covers a run and all its resumptions.
:class:`RunResult` is an entry of ``results.json``, which says by ``schema_version`` how it is to be read.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, JsonValue

from fedmr_med.errors import ResultsError
from fedmr_med.evaluation.base import MetricName, Statistics
from fedmr_med.evaluation.history import Best, History
from fedmr_med.evaluation.records import RoundRecord
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.files import write_text
from fedmr_med.schema import Name, Omitted, Strict, validated

SCHEMA_VERSION = 2
"""Raised when a key of a results file is renamed, removed, or gets another meaning. Version 1 had a key for each figure
that version 2 keeps by the name of its metric."""
READABLE_VERSIONS = (1, SCHEMA_VERSION)

M = TypeVar("M", bound=BaseModel)


class RunSetup(Strict):
    """What a run was.

    Attributes:
        dataset, split, method, seed: of its job.
        name: of its job, or "".
        label: what tables and curves call it; runs of the same label differ in the seed only.
        model, options, train, buffers: of its job: network, options of the method, local training, and what becomes
            of BatchNorm statistics.
        clients, clients_per_round: sites in all and in a round; None where that is not settled beforehand.
        fraction: share of the training data that was used.
        share: share of the sites that share their prototypes.
        held_out: share of each site's training data that was not trained on but scored on; all scores are of it. 0
            where the test set was scored on.
        demo: whether generated pictures stood in for data.
        class_names: the classes, in the order of the labels.
    """

    dataset: str
    split: str | None
    method: str
    seed: int
    name: str = ""
    label: str = ""
    model: str = ""
    options: dict[str, JsonValue] = {}
    clients: int | None = None
    clients_per_round: int | None = None
    fraction: float = 1.0
    share: float = 1.0
    held_out: float = 0.0
    train: dict[str, JsonValue] = {}
    buffers: str = ""
    demo: bool = False
    class_names: tuple[Name, ...] = ()


class RoundResult(Strict):
    """One round of a run, over all its sites.

    Attributes:
        round: number of the round, from 1.
        accuracy, balanced_accuracy: of the model it ended with, pooled; None where nobody scored it, see
            :class:`fedmr_med.evaluation.score.Score`.
        seconds: wall time.
        bytes_up, bytes_down: size of the arrays that all sites sent and received.
        metrics: every metric of that model, pooled.
        terms: mean over the sites of each term of the local objective.
        local_seconds: mean over the sites of their local time; None where no site tells.
        prototype_norm: mean length of the class means that were shared; None where none were.
        statistics: see :data:`Statistics`.
    """

    round: int
    accuracy: float | None
    balanced_accuracy: float | None
    seconds: float
    bytes_up: int
    bytes_down: int
    metrics: dict[MetricName, float] = {}
    terms: dict[str, float] = {}
    local_seconds: float | None = None
    prototype_norm: Omitted[float] = None
    statistics: Statistics = {}

    @classmethod
    def of(cls, record: RoundRecord, evaluation: Evaluation | None) -> "RoundResult":
        """Sum up a round, given the scores of the model it ended with."""
        score = evaluation.pooled if evaluation else None
        sites = list(record.sites.values())
        seconds = [site.seconds for site in sites if site.seconds is not None]
        names = dict.fromkeys(name for site in sites for name in site.terms)
        return cls(
            round=record.round,
            accuracy=score.accuracy if score else None,
            balanced_accuracy=score.balanced_accuracy if score else None,
            seconds=record.seconds,
            bytes_up=sum(site.bytes_up for site in sites),
            bytes_down=sum(site.bytes_down for site in sites),
            metrics=evaluation.metrics if evaluation else {},
            terms={name: _mean([site.terms[name] for site in sites if name in site.terms]) for name in names},
            local_seconds=_mean(seconds) if seconds else None,
            prototype_norm=record.prototype_norm,
            statistics=record.statistics,
        )


class RunResult(RunSetup):
    """An entry of ``results.json``: what a run was, and what came of it.

    Attributes:
        best_accuracy, best_balanced_accuracy, best_round: the best scores of any model of the run, and the completed
            rounds of the one with the best accuracy; with validation images, those of the model that is kept.
        last_accuracy, last5_accuracy: of the last round, and the mean of the last five.
        head_accuracy, head_balanced_accuracy, head_metrics: of the final model with its closed-form head.
        head_bytes_up, head_bytes_down, head_seconds: what the exchange for that head cost.
        no_head: why that head could not be solved for.
        engine_ms_per_task: what the runner itself cost per task, in milliseconds.
        kept_bytes: what the site with the most keeps from round to round.
        runaway_round: the first round in which features ran away from their prototypes.
        one_class: whether the last model takes every test image for the same class.
        error: why the run failed.
    """

    rounds: tuple[RoundResult, ...] = ()
    best_accuracy: float | None = None
    best_balanced_accuracy: float | None = None
    best_round: int | None = None
    last_accuracy: float | None = None
    last5_accuracy: float | None = None
    best: Best | None = None
    head_accuracy: float | None = None
    head_balanced_accuracy: float | None = None
    head_metrics: dict[MetricName, float] = {}
    head_bytes_up: int | None = None
    head_bytes_down: int | None = None
    head_seconds: float | None = None
    no_head: Omitted[str] = None
    engine_ms_per_task: float | None = None
    kept_bytes: int | None = None
    runaway_round: Omitted[int] = None
    one_class: Omitted[bool] = None
    history: Omitted[History] = None
    error: Omitted[str] = None

    @classmethod
    def of(
        cls,
        setup: RunSetup,
        history: History,
        *,
        whole: bool = False,
        engine_ms_per_task: float | None = None,
        kept_bytes: int | None = None,
    ) -> "RunResult":
        """Sum up a run; ``whole`` keeps its history in the entry."""
        scores = {e.round: e.pooled for e in history.evaluations if e.pooled and e.pooled.accuracy is not None}
        evaluations = {e.round: e for e in history.evaluations}
        rounds = tuple(RoundResult.of(record, evaluations.get(record.round)) for record in history.rounds)
        accuracies = [r.accuracy for r in rounds if r.accuracy is not None]
        head, of_head = history.head, history.of_head
        scored = of_head.pooled if of_head else None
        # Of equal ones the first, but never the initial model.
        best_round = max(scores, key=lambda number: (scores[number].accuracy or 0.0, number > 0), default=None)
        if any(e.validation is not None for e in history.evaluations):  # test images choose nothing then
            scores = {
                number: score for number, score in scores.items() if history.best and number == history.best.round
            }
            best_round = next(iter(scores), None)
        content = setup.model_dump() | {
            "rounds": rounds,
            "best_accuracy": None if best_round is None else scores[best_round].accuracy,
            "best_balanced_accuracy": max(
                (b for s in scores.values() if (b := s.balanced_accuracy) is not None), default=None
            ),
            "best_round": best_round,
            "last_accuracy": rounds[-1].accuracy if rounds else None,
            "last5_accuracy": _mean(accuracies[-5:]) if accuracies else None,
            "best": history.best,
            "head_accuracy": scored.accuracy if scored else None,
            "head_balanced_accuracy": scored.balanced_accuracy if scored else None,
            "head_metrics": of_head.metrics if of_head else {},
            "head_bytes_up": head.bytes_up if head else None,
            "head_bytes_down": head.bytes_down if head else None,
            "head_seconds": head.seconds if head else None,
            "no_head": history.no_head,
            "engine_ms_per_task": engine_ms_per_task,
            "kept_bytes": kept_bytes,
            "runaway_round": history.runaway_round,
            "one_class": (scores[max(scores)].of_one_class or None) if scores else None,
            "history": history if whole else None,
        }
        return cls.model_validate(content)

    @property
    def last5_balanced_accuracy(self) -> float | None:
        """Mean balanced accuracy of the last five rounds."""
        scores = [record.balanced_accuracy for record in self.rounds if record.balanced_accuracy is not None]
        return _mean(scores[-5:]) if scores else None

    @classmethod
    def failed(cls, setup: RunSetup, error: str) -> "RunResult":
        """Return the entry of a run that failed."""
        return cls(**setup.model_dump(), error=error)


class RunResults(Strict):
    """The content of ``results.json``."""

    runs: tuple[RunResult, ...]


def versioned(content: BaseModel) -> dict[str, JsonValue]:
    """Return the content of a results file as JSON values, with the version of the schema."""
    return {"schema_version": SCHEMA_VERSION} | content.model_dump(mode="json")


def write_result(path: Path, content: BaseModel) -> None:
    """Write a results file, atomically."""
    write_text(path, json.dumps(versioned(content), indent=1))


def read_result(path: Path, model: type[M]) -> M:
    """Read a results file.

    Raises:
        ResultsError: it is missing or damaged, or another version of the toolkit wrote it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise ResultsError(f"{path} cannot be read: {str(e).splitlines()[0]}.", code="file.unreadable") from e
    version = content.pop("schema_version", None) if isinstance(content, dict) else None
    if version not in READABLE_VERSIONS:
        found = "no schema version" if version is None else f"schema version {version}"
        raise ResultsError(
            f"{path} has {found}, and this version of fedmr_med reads {SCHEMA_VERSION}. "
            "Remove it or write to another folder.",
            code="file.version",
        )
    return validated(model, content, str(path), ResultsError)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
