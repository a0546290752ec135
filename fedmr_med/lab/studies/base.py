"""What all studies share: the paper's figures, a budget, a place to work in, and the form of what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pydantic import JsonValue

from fedmr_med.data.datasets import DATASETS
from fedmr_med.data.demo import DEMO
from fedmr_med.errors import FedMRError
from fedmr_med.evaluation.results import RunResult, RunResults, write_result
from fedmr_med.jobs.benchmark import clients_of
from fedmr_med.jobs.catalog import job_for
from fedmr_med.lab.bench.compare import complete
from fedmr_med.lab.bench.outputs import RESULTS
from fedmr_med.lab.bench.runs import Run, Selection
from fedmr_med.lab.comparison.launchers import Resources
from fedmr_med.lab.datasets.synthetic import write_synthetic
from fedmr_med.report.elements import Section
from fedmr_med.schema import Strict, read_yaml, validated

Cells = dict[str, str | int | float]

AUTHORS_TRANSFORMS = {"fmnist": "unit", "cifar10": "reflect_crop_flip", "cifar100": "crop_flip_rotate"}
"""How the authors' code prepares images, where the dataset's own protocol does otherwise."""


@dataclass(frozen=True)
class Budget:
    """How much of the paper's set-up a study keeps.

    Attributes:
        about: what it is, in a few words.
        every_row: whether all rows of a table are run, or the first of each dataset.
        seeds: the seeds that are run unless others are asked for.
        fractions: share of the training data by dataset; all of it where there is no entry.
    """

    name: str
    about: str
    every_row: bool
    seeds: tuple[int, ...]
    fractions: Mapping[str, float] = field(default_factory=dict)

    def model(self, dataset: str) -> str | None:
        """Return the network; None is the paper's."""
        record = DATASETS.get(dataset)
        if self.name == "full" or record.kind == "texts":
            return None
        return "small_cnn" if self.name == "smoke" or record.channels == 1 else "narrow_resnet"

    def changes(self, dataset: str) -> dict[str, JsonValue]:
        """Return the settings that are not the paper's, by dotted key."""
        if self.name == "full":
            return {}
        record = DATASETS.get(dataset)
        texts, photographs = record.kind == "texts", record.kind == "photographs"
        if self.name == "cpu":
            budget: dict[str, JsonValue] = {"federation.rounds": 20, "train.epochs": 1 if texts else 3}
            if record.sites:
                budget = {"federation.rounds": 9, "train.updates": 20}
            return budget | ({"task.image_size": 64} if photographs else {})
        small: dict[str, JsonValue] = {"hidden": 8, "layers": 1} if texts else {"width": 4, "feature_size": 16}
        budget = {"federation.rounds": 2, "train.updates": 2, "train.batch_size": 8}
        if photographs:
            budget |= {"task.image_size": 20, "task.transform": "plain", "loss.name": "cross_entropy"}
        return {"model.options": small, **budget}


BUDGETS = {
    "smoke": Budget("smoke", "a check that the study runs; its figures mean nothing", False, (0,)),
    "cpu": Budget(
        "cpu",
        "small networks and about 8,000 samples, for a machine without a GPU",
        True,
        (0,),
        {"fmnist": 0.1334, "svhn": 0.11, "cifar10": 0.16, "cifar100": 0.16},
    ),
    "full": Budget("full", "the paper's set-up", True, (0, 1, 2)),
}

Vectors = tuple[tuple[float, float], ...]


class PaperRow(Strict):
    """A row of one of the paper's tables.

    Attributes:
        splits: the splits it is the average of, instead of one.
        clients: number of clients, where the split does not say.
        rounds: of this row, where the table has other ones than the dataset's usual.
        values, seconds: the printed figure and time of each variant; a text where the paper gives no number.
    """

    dataset: str
    split: str | None = None
    splits: tuple[str, ...] = ()
    clients: int | None = None
    rounds: int | None = None
    values: dict[str, int | float | str]
    seconds: dict[str, float] = {}


class PaperStudy(Strict):
    """What the paper prints about a study.

    Attributes:
        title: table or figure of the paper.
        remarks: where the paper contradicts itself or leaves something open.
        wire: millions of numbers sent, without and with prototypes, by dataset.
        stored: what a client stores, by method.
        optimal, averaged, degrees: weights of the classes in the example of section 3.2, and the angle between the two.
    """

    title: str
    rows: tuple[PaperRow, ...] = ()
    remarks: tuple[str, ...] = ()
    wire: dict[str, tuple[float, float]] = {}
    stored: dict[str, str] = {}
    optimal: Vectors = ()
    averaged: Vectors = ()
    degrees: float = 0.0


@lru_cache(maxsize=1)
def paper_figures() -> dict[str, PaperStudy]:
    """Return the paper's figures by study."""
    path = Path(__file__).with_name("paper.yaml")
    return {name: validated(PaperStudy, study, f"{path}: {name}") for name, study in read_yaml(path).items()}


@dataclass(frozen=True)
class StudyTable:
    """A table of a study; every row has the same keys, and a value for each."""

    title: str
    rows: Sequence[Cells]


@dataclass(frozen=True)
class Outcome:
    """What a study gives: the paper's figures beside the measured ones, pictures, and what the tables do not say."""

    tables: Sequence[StudyTable]
    pictures: Sequence[Section] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Setting:
    """Where and how a study is run.

    Attributes:
        out: folder for its results.
        data: folder of all datasets; None takes stand-ins for the smoke budget, else what the environment names.
        workers: runs side by side; None uses the cores, 0 this process.
        dataset, split: only rows of these, if given.
        settings: other settings of the jobs, by key.
    """

    study: str
    budget: Budget
    out: Path
    data: Path | None = None
    seeds: tuple[int, ...] = (0,)
    workers: int | None = None
    dataset: str | None = None
    split: str | None = None
    settings: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def paper(self) -> PaperStudy:
        """The paper's figures for this study."""
        return paper_figures()[self.study]

    @property
    def stand_ins(self) -> bool:
        """Whether generated data stands in for the datasets."""
        return self.budget.name == "smoke" and self.data is None

    def rows(self) -> list[PaperRow]:
        """Return the rows of the paper's table that this setting runs."""
        rows = [row for row in self.paper.rows if self.dataset in (None, row.dataset)]
        rows = [row for row in rows if self.split in (None, row.split)]
        if self.budget.every_row or self.split:
            return rows
        return list({row.dataset: row for row in reversed(rows)}.values())[::-1]

    def root(self, dataset: str) -> Path | None:
        """Return the folder of a dataset; None where the environment has to name it."""
        if self.stand_ins:
            record = DATASETS.get(dataset)
            return DEMO if record.has_demo else write_synthetic(record, self.out / "synthetic" / dataset)
        if self.data is None:
            return None
        return self.data / dataset if (self.data / dataset).exists() else self.data

    def run(
        self,
        label: str,
        dataset: str,
        method: str,
        *,
        split: str | None = None,
        clients: int | None = None,
        options: Mapping[str, JsonValue] | None = None,
        share: float = 1.0,
        rounds: int | None = None,
        seed: int = 0,
    ) -> Run:
        """Return one run within the budget."""
        root = self.root(dataset)
        paper = {"task.transform": AUTHORS_TRANSFORMS.get(dataset), "federation.rounds": rounds}
        changes: dict[str, JsonValue] = {"fedmr.variant": "paper"}
        changes |= {key: value for key, value in paper.items() if value is not None}
        changes |= self.budget.changes(dataset)
        changes |= {f"method.options.{key}": value for key, value in (options or {}).items()}
        job = job_for(
            dataset,
            method,
            split=split,
            clients=clients,
            model=self.budget.model(dataset),
            seed=seed,
            changes=changes | dict(self.settings),
            demo=root == DEMO,
        )
        number = clients_of(dataset, job.task.split, clients)
        fraction = 1.0 if self.stand_ins else self.budget.fractions.get(dataset, 1.0)
        return Run(label, job, number, Selection(data=root, fraction=fraction, share=share))

    def results(self, runs: Sequence[Run]) -> list[RunResult]:
        """Do the runs, or what is not done yet of them, and return their entries; a FedMRError says that one failed."""
        results = complete(runs, self.out, Resources(workers=self.workers))
        write_result(self.out / RESULTS, RunResults(runs=tuple(results)))
        for run, result in zip(runs, results, strict=True):
            if result.error is not None:
                place = f"{result.dataset} {result.split or ''}".strip()
                raise FedMRError(f"{place}, {run.title}: {result.error}", code="run.failed")
        return results

    def differences(self, datasets: Sequence[str]) -> list[str]:
        """Return what differs from the paper's set-up, a sentence each."""
        if not datasets:
            return ["The example needs no dataset; what the paper leaves open is said below."]
        lines = [f"Budget {self.budget.name}: {self.budget.about}."]
        if self.stand_ins:
            lines.append(f"Generated data stands in for {', '.join(datasets)}: no accuracy here means anything.")
        for dataset in datasets:
            changes = self.budget.changes(dataset) | dict(self.settings)
            model = self.budget.model(dataset)
            parts = [f"{model} instead of {DATASETS.get(dataset).protocol.model}"] if model else []
            parts += [f"{key} {value}" for key, value in changes.items()]
            if not self.stand_ins and dataset in self.budget.fractions:
                parts.append(f"{100 * self.budget.fractions[dataset]:g} % of the training data")
            if parts:
                lines.append(f"{dataset}: {'; '.join(parts)}.")
        prepared = [f"{name} by {AUTHORS_TRANSFORMS[name]}" for name in datasets if name in AUTHORS_TRANSFORMS]
        if prepared:
            how = ", ".join(prepared)
            lines.append(f"Images are prepared as in the authors' code ({how}); the paper does not mention it.")
        lines.append(f"Seeds {', '.join(map(str, self.seeds))}; the paper does not say how many it used.")
        return lines
