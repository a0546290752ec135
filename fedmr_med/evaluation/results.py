"""What a run leaves behind for people and programs: the one results schema of the toolkit.

The history of a chain is part of its checkpoint, so that a summary covers a run and all its resumptions.
:class:`RunResult` is an entry of ``results.json``, which says by ``schema_version`` how it is to be read.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, JsonValue

from fedmr_med.errors import ResultsError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.base import MetricName
from fedmr_med.evaluation.figures import Figures, figures
from fedmr_med.evaluation.metrics import Scores, pooled, recalls
from fedmr_med.files import write_text
from fedmr_med.schema import Name, Strict, validated

SCHEMA_VERSION = 2
"""Raised when a key of a results file is renamed, removed, or gets another meaning. Version 1 had a key for each figure
that version 2 keeps by the name of its metric."""
READABLE_VERSIONS = (1, SCHEMA_VERSION)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

# The largest figures of a reply that make sense. Sums of them stay finite, whatever the sites tell.
MAX_SECONDS = 1e9
MAX_TERM = 1e12
TERM_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,31}$"

RUNAWAY_ROUNDS, RUNAWAY_FACTOR = 5, 1.5
"""Features run away if the shared class means became longer in each of so many rounds, and are so many times as long as
the shortest ones before."""

Omitted = Annotated[T | None, Field(exclude_if=lambda value: value is None)]
"""A field that is left out of the file where there is nothing to say."""

Statistics = Annotated[dict[str, JsonValue], Field(exclude_if=lambda value: not value)]
"""What statistics of other packages say of an exchange, by name; left out where there are none."""


class Score(Strict):
    """The scalars of :class:`fedmr_med.evaluation.metrics.Scores`.

    Attributes:
        accuracy, balanced_accuracy, samples: over the classes that are not held back.
        withheld: the labels of the classes that a site holds back.
        recall: of each class, in the order of the labels; None for a class without test images or held back. Empty
            where only the scalars are shared.
    """

    accuracy: float
    balanced_accuracy: float
    samples: int
    withheld: tuple[int, ...] = ()
    recall: tuple[float | None, ...] = ()

    @classmethod
    def of(cls, scores: Scores) -> "Score":
        """Drop the confusion matrix and the histograms."""
        return cls(
            recall=() if scores.confusion is None else recalls(scores.confusion),
            accuracy=scores.accuracy,
            balanced_accuracy=scores.balanced_accuracy,
            samples=scores.samples,
            withheld=scores.withheld,
        )


class Evaluation(Strict):
    """The global model after ``round`` rounds on the test sets of the sites that share their scores.

    Attributes:
        round: completed rounds; 0 is the initial model.
        sites: score by site.
        pooled: over the sites in ``pooled_sites``, which share their confusion matrix.
        held_back: the sites that answered and let no score out.
        statistics: see :data:`Statistics`.
        metrics: every metric over those sites, for all classes together.
        figures, pooled_figures: the clinical figures by site and pooled. To keep files small they stay with the best
            and the last evaluation of a chain only.
    """

    round: int
    sites: dict[Name, Score]
    pooled: Score | None
    pooled_sites: tuple[Name, ...]
    held_back: tuple[Name, ...] = ()
    statistics: Statistics = {}
    metrics: dict[MetricName, float] = {}
    figures: dict[Name, Figures] = {}
    pooled_figures: Figures | None = None

    @classmethod
    def of(cls, round_number: int, answers: Mapping[str, Scores | None]) -> "Evaluation":
        """Sum up the scores of a model.

        Args:
            round_number: completed rounds of the model.
            answers: scores by site; None of a site that holds them back.
        """
        known = {site: scores for site, scores in sorted(answers.items()) if scores is not None}
        pool, names = pooled(known)
        together = None if pool is None else figures(pool)
        thresholds = None if together is None else together.thresholds
        by_site = {site: figures(scores, thresholds) for site, scores in known.items()}
        return cls(
            round=round_number,
            sites={site: Score.of(scores) for site, scores in known.items()},
            pooled=Score.of(pool) if pool else None,
            pooled_sites=names,
            held_back=tuple(sorted(answers.keys() - known.keys())),
            metrics=_values(together),
            figures={site: found for site, found in by_site.items() if found is not None},
            pooled_figures=together,
        )

    @classmethod
    def of_total(cls, round_number: int, total: Scores | None, sites: tuple[str, ...]) -> "Evaluation":
        """Sum up scores of which only the total over ``sites`` is known; None where none of them shares any."""
        together = None if total is None else figures(total)
        return cls(
            round=round_number,
            sites={},
            pooled=None if total is None else Score.of(total),
            pooled_sites=() if total is None else sites,
            metrics=_values(together),
            pooled_figures=together,
        )

    def without_figures(self) -> "Evaluation":
        """Return the evaluation with its scalars alone."""
        return self.model_copy(update={"figures": {}, "pooled_figures": None})


class SiteReport(Strict):
    """The plain figures that a site which shares metrics adds to its reply; too few to hide anything else in.

    Attributes:
        seconds: local time.
        terms: mean of each term of the local objective.
        images_total, images_skipped: images found, and those of them that could not be read.
        epsilon: what its prototypes have cost of its privacy, over all chains; None where they have no noise.
        training_epsilon: the same of its model updates.
    """

    seconds: float | None = Field(None, strict=True, ge=0, le=MAX_SECONDS)
    terms: dict[
        Annotated[str, Field(strict=True, pattern=TERM_PATTERN)],
        Annotated[float, Field(strict=True, ge=-MAX_TERM, le=MAX_TERM)],
    ] = Field(default={}, max_length=8)
    images_total: int | None = Field(None, strict=True, ge=0, le=MAX_IMAGES)
    images_skipped: int | None = Field(None, strict=True, ge=0, le=MAX_IMAGES)
    epsilon: Omitted[Annotated[float, Field(strict=True, ge=0, le=MAX_TERM)]] = None
    training_epsilon: Omitted[Annotated[float, Field(strict=True, ge=0, le=MAX_TERM)]] = None

    def costs(self) -> "SiteReport":
        """Return what the site's noisy releases have cost, and nothing else of the report."""
        return SiteReport(epsilon=self.epsilon, training_epsilon=self.training_epsilon)


class SiteRound(SiteReport):
    """One site's part in a round; the figures of its report are absent where it shares no metrics.

    Attributes:
        samples: its training images.
        shared_classes: the classes whose prototype it shared.
        bytes_up, bytes_down: size of the arrays it sent and received.
    """

    samples: int
    shared_classes: tuple[Name, ...]
    bytes_up: int
    bytes_down: int


class SecureRecord(Strict):
    """A secure sum.

    Attributes:
        sites: whose vectors are in the total.
        dropped: the sites that took part, and whose vectors are not.
        bytes_up, bytes_down: of its messages, over all sites.
        seconds: wall time.
        error: why there is no total.
    """

    sites: tuple[Name, ...] = ()
    dropped: tuple[Name, ...] = ()
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    error: Omitted[str] = None


class RoundRecord(Strict):
    """One round.

    Attributes:
        round: number of the round, from 1.
        sites: the sites whose reply counted.
        refused: the sites whose reply did not, with the reason.
        limited: the sites that told of far more images than the others, and counted with fewer.
        seconds: wall time from sending the model to the new one.
        secure: the secure sum of its statistics, where the job has one.
        prototype_norm: mean length of the class means that were shared in this round; None where none were.
        statistics: see :data:`Statistics`.
    """

    round: int
    sites: dict[Name, SiteRound]
    refused: dict[Name, str] = {}
    limited: tuple[Name, ...] = ()
    seconds: float = 0.0
    secure: Omitted[SecureRecord] = None
    prototype_norm: Omitted[float] = None
    statistics: Statistics = {}


class HeadRecord(Strict):
    """A closed-form head.

    Attributes:
        round: completed rounds of the model that made the features.
        shrinkage, prior: of the head; without anybody's scatter there is no shrinkage, and the nearest class mean wins.
        sites: the sites whose statistics it is made of.
        refused: the sites whose statistics did not count, with the reason.
        limited: the sites that told of far more images of a class than the others, and count with fewer.
        classes: the classes it knows.
        bytes_up, bytes_down: size of the statistics that all sites sent, and of the models they received for it.
        seconds: wall time from sending the model to the head.
        evaluation: the model with this head.
        statistics: see :data:`Statistics`.
    """

    round: int
    shrinkage: float | None
    prior: str
    sites: tuple[Name, ...]
    classes: tuple[Name, ...]
    refused: dict[Name, str] = {}
    limited: tuple[Name, ...] = ()
    bytes_up: int
    bytes_down: int = 0
    seconds: float = 0.0
    evaluation: Evaluation | None = None
    statistics: Statistics = {}


class Best(Strict):
    """The best global model so far: completed rounds, pooled balanced accuracy, and whether with a closed-form head."""

    round: int
    balanced_accuracy: float
    head: bool = False


class History(Strict):
    """All rounds and evaluations of a chain, the best model, and the last closed-form head.

    Attributes:
        rounds, evaluations, best, head: as above.
        no_head: why the last head could not be solved for.
    """

    rounds: tuple[RoundRecord, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    best: Best | None = None
    head: HeadRecord | None = None
    no_head: Omitted[str] = None

    @property
    def best_evaluation(self) -> Evaluation | None:
        """The evaluation of the best model; None where no model was scored."""
        if self.best is not None and self.best.head:
            return self.head.evaluation if self.head and self.head.round == self.best.round else None
        return next((e for e in self.evaluations if self.best and e.round == self.best.round), None)

    def with_evaluation(self, evaluation: Evaluation) -> "History":
        """Add an evaluation; it becomes the best if its pooled balanced accuracy is higher than all before.

        A trained model that scores as the initial one is better than that: it knows what the initial one guesses.
        """
        best = self.best
        score = evaluation.pooled.balanced_accuracy if evaluation.pooled else None
        untrained = best is not None and best.round == 0 and not best.head
        if evaluation.pooled and (
            best is None
            or evaluation.pooled.balanced_accuracy > best.balanced_accuracy
            or (untrained and score == best.balanced_accuracy)
        ):
            best = Best(round=evaluation.round, balanced_accuracy=evaluation.pooled.balanced_accuracy)
        others = tuple(
            e if best and not best.head and e.round == best.round else e.without_figures()
            for e in self.evaluations
            if e.round != evaluation.round
        )
        return self.model_copy(update={"evaluations": (*others, evaluation), "best": best})

    def with_head(self, record: HeadRecord) -> "History":
        """Put down a head; scored, it becomes the best if its pooled balanced accuracy is higher than all before."""
        best, pooled = self.best, record.evaluation.pooled if record.evaluation else None
        if pooled and (best is None or pooled.balanced_accuracy > best.balanced_accuracy):
            best = Best(round=record.round, balanced_accuracy=pooled.balanced_accuracy, head=True)
        return self.model_copy(update={"head": record, "no_head": None, "best": best})

    def without_head(self, reason: str) -> "History":
        """Put down why a head could not be solved for."""
        return self.model_copy(update={"no_head": reason})

    @property
    def runaway_round(self) -> int | None:
        """The first round in which features ran away from their prototypes; None if they did not."""
        known = [(record.round, record.prototype_norm) for record in self.rounds if record.prototype_norm is not None]
        rises, shortest = 0, float("inf")
        for (_, before), (number, now) in pairwise(known):
            rises, shortest = (rises + 1 if now > before else 0), min(shortest, before)
            if rises >= RUNAWAY_ROUNDS and now >= RUNAWAY_FACTOR * shortest:
                return number
        return None

    def with_round(self, record: RoundRecord) -> "History":
        """Add a round."""
        return self.model_copy(update={"rounds": (*self.rounds, record)})

    @property
    def sites(self) -> set[str]:
        """The sites whose reply counted in any round."""
        return {site for record in self.rounds for site in record.sites}

    def parts_of(self, site: str) -> list[SiteRound]:
        """Return a site's part in each round in which its reply counted."""
        return [record.sites[site] for record in self.rounds if site in record.sites]


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
        accuracy, balanced_accuracy: of the model it ended with, pooled; None where nobody scored it.
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
        rounds: its rounds.
        best_accuracy, best_balanced_accuracy, best_round: the best scores of any model of the run, and the completed
            rounds of the one with the best accuracy.
        last_accuracy, last5_accuracy: of the last round, and the mean of the last five.
        best: the model that is kept as the best.
        head_accuracy, head_balanced_accuracy, head_metrics: of the final model with its closed-form head.
        head_bytes_up, head_bytes_down, head_seconds: what the exchange for that head cost.
        no_head: why that head could not be solved for.
        engine_ms_per_task: what the runner itself cost per task, in milliseconds.
        kept_bytes: what the site with the most keeps from round to round.
        runaway_round: the first round in which features ran away from their prototypes.
        history: the whole history of a chain.
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
        scores = {e.round: e.pooled for e in history.evaluations if e.pooled}
        evaluations = {e.round: e for e in history.evaluations}
        rounds = tuple(RoundResult.of(record, evaluations.get(record.round)) for record in history.rounds)
        accuracies = [r.accuracy for r in rounds if r.accuracy is not None]
        of_head = history.head.evaluation if history.head else None
        head = of_head.pooled if of_head else None
        # Of equal ones the first, but never the initial model.
        best_round = max(scores, key=lambda number: (scores[number].accuracy, number > 0), default=None)
        content = setup.model_dump() | {
            "rounds": rounds,
            "best_accuracy": None if best_round is None else scores[best_round].accuracy,
            "best_balanced_accuracy": max((score.balanced_accuracy for score in scores.values()), default=None),
            "best_round": best_round,
            "last_accuracy": rounds[-1].accuracy if rounds else None,
            "last5_accuracy": _mean(accuracies[-5:]) if accuracies else None,
            "best": history.best,
            "head_accuracy": head.accuracy if head else None,
            "head_balanced_accuracy": head.balanced_accuracy if head else None,
            "head_metrics": of_head.metrics if of_head else {},
            "head_bytes_up": history.head.bytes_up if history.head else None,
            "head_bytes_down": history.head.bytes_down if history.head else None,
            "head_seconds": history.head.seconds if history.head else None,
            "no_head": history.no_head,
            "engine_ms_per_task": engine_ms_per_task,
            "kept_bytes": kept_bytes,
            "runaway_round": history.runaway_round,
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


def _values(found: Figures | None) -> dict[str, float]:
    return {name: estimate.value for name, estimate in found.metrics.items()} if found else {}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
