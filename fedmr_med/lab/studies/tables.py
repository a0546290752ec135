"""The studies that are tables of accuracies: a row per dataset and split, a column per variant of a method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from pydantic import JsonValue

from fedmr_med.evaluation.results import RunResult
from fedmr_med.evaluation.seeds import Spread
from fedmr_med.jobs.coefficients import coefficients
from fedmr_med.lab.bench.runs import Run
from fedmr_med.lab.studies.base import Cells, Outcome, PaperRow, Setting, StudyTable
from fedmr_med.methods import PAPER_METHODS
from fedmr_med.report.elements import Section
from fedmr_med.report.pages.comparison import seed_curves, seeds_chart

BEST_BASELINE = "best baseline"
BASELINES = tuple(name for name in PAPER_METHODS if name not in ("fedavg", "fedmr"))


@dataclass(frozen=True)
class Variant:
    """A method, with the paper's coefficients, as a column of a table.

    Attributes:
        options: other options.
        share: share of the clients that share their prototypes.
        with_prototypes: whether FedMR's inter-class loss is added to the method's own objective.
    """

    method: str
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    share: float = 1.0
    with_prototypes: bool = False

    def options_for(self, dataset: str, split: str | None) -> dict[str, JsonValue]:
        """Return the options that are not the paper's coefficients of the method itself."""
        if not self.with_prototypes:
            return dict(self.options)
        weight = coefficients(dataset, split, "fedmr").get("mu2", 1e-4)
        return dict(self.options) | {"reshaping": {"terms": "inter", "mu2": weight}}


Variants = dict[str, Variant]
Key = tuple[str, str, str]

EIGHT: Variants = {name: Variant(name) for name in PAPER_METHODS}
VARIANTS: dict[str, Variants] = {
    **dict.fromkeys(("acc", "larger", "communication", "dirichlet"), EIGHT),
    "burden": EIGHT | {"lite 10": Variant("fedmr", {"lite": 10}), "lite 50": Variant("fedmr", {"lite": 50})},
    "lite": {"fedavg": Variant("fedavg")} | {f"n={n}": Variant("fedmr", {"lite": n}) for n in (0, 10, 50, 128)},
    "optout": {"fedavg": Variant("fedavg")} | {f"{p} %": Variant("fedmr", share=p / 100) for p in (50, 80, 100)},
    "ablation": {"fedavg": Variant("fedavg")} | {t: Variant("fedmr", {"terms": t}) for t in ("inter", "intra", "both")},
    "eigenvalues": {name: variant for name, variant in EIGHT.items() if name != "fedmr"}
    | {terms: Variant("fedmr", {"terms": terms}) for terms in ("intra", "both")},
    "mu1": {f"mu1={mu1:g}": Variant("fedmr", {"mu1": mu1}) for mu1 in (1.0, 0.1, 0.01, 0.001)},
    "prototype": {name: Variant(name) for name in BASELINES if name != "fedproc"}
    | {f"{name} + prototypes": Variant(name, with_prototypes=True) for name in BASELINES if name != "fedproc"}
    | {"fedmr without prototypes": Variant("fedmr", {"terms": "intra"}), "fedmr": Variant("fedmr")},
    "morereal": {name: variant for name, variant in EIGHT.items() if name not in ("fednova", "feddc")},
    "one-hot": {name: Variant(name) for name in ("fedavg", "fedmr")}
    | {"one-hot": Variant("fedmr", {"prototypes": "one_hot"})},
    "margin-free": {name: Variant(name) for name in ("fedavg", "fedmr")}
    | {f"margin-free, mu2={mu2:g}": Variant("fedmr", {"margin": False, "mu2": mu2}) for mu2 in (0.0001, 0.01, 0.1)},
}


def accuracy_table(setting: Setting) -> Outcome:
    """Run a table of accuracies; the one of FedMR Lite has times as well."""
    entries = run_table(setting)
    rows: list[Cells] = []
    for row in setting.rows():
        best = [BEST_BASELINE] if BEST_BASELINE in row.values else []
        for label in (*VARIANTS[setting.study], *best):
            paper, measured = row.values.get(label, "not given"), _measured(setting, row, label, entries)
            cells = place(setting, row) | {"variant": label, "paper": paper, "measured": measured.percent()}
            if not setting.stand_ins:
                cells["difference"] = "no figure in the paper"
                if isinstance(paper, int | float):
                    cells["difference"] = f"{100 * measured.mean - paper:+.2f}"
            if row.seconds:
                runs = [entry for part in splits(setting, row) for entry in entries[entry_key(row, part, label)]]
                cells |= {"paper, s": row.seconds[label], "measured, s": round(local_seconds(runs), 3)}
            rows.append(cells)
    notes = ["Accuracy of the best round in percent, mean over the seeds; the paper does not say which round it takes."]
    return Outcome([StudyTable(setting.paper.title, rows)], curves(entries), notes)


def run_table(setting: Setting) -> dict[Key, list[RunResult]]:
    """Run every variant of a study on every row; return entries by (dataset, split and clients, variant) and seed."""
    runs = planned(setting)
    results = iter(setting.results([run for group in runs.values() for run in group]))
    return {key: [next(results) for _ in group] for key, group in runs.items()}


def planned(setting: Setting) -> dict[Key, list[Run]]:
    """Return the runs of :func:`run_table`, by the same keys."""
    return {
        entry_key(row, part, label): [
            setting.run(
                label,
                row.dataset,
                variant.method,
                split=part,
                clients=row.clients,
                options=variant.options_for(row.dataset, part),
                share=variant.share,
                rounds=row.rounds,
                seed=seed,
            )
            for seed in setting.seeds
        ]
        for row in setting.rows()
        for part in splits(setting, row)
        for label, variant in VARIANTS[setting.study].items()
    }


def splits(setting: Setting, row: PaperRow) -> Sequence[str | None]:
    """Return the splits a row is the average of: one, for most."""
    if row.splits:
        return row.splits if setting.budget.every_row else row.splits[:1]
    return [row.split]


def local_seconds(entries: Sequence[RunResult]) -> float:
    """Return the mean time a client takes for its part of a round."""
    return fmean(record.local_seconds or 0.0 for entry in entries for record in entry.rounds)


def curves(entries: Mapping[Key, Sequence[RunResult]]) -> list[Section]:
    """Return a picture of the accuracy by round for each dataset and split."""
    pictures = []
    for number, place in enumerate(dict.fromkeys(key[:2] for key in entries)):
        runs = [entry for key, of_key in entries.items() if key[:2] == place for entry in of_key]
        if chart := seeds_chart("Accuracy by round", seed_curves(runs, "accuracy"), ylabel="accuracy, %"):
            pictures.append(Section(f"curves{number}", " ".join(place), chart))
    return pictures


def _measured(setting: Setting, row: PaperRow, label: str, entries: Mapping[Key, Sequence[RunResult]]) -> Spread:
    if label == BEST_BASELINE:
        return max((_measured(setting, row, name, entries) for name in BASELINES), key=lambda spread: spread.mean)
    parts = [entries[entry_key(row, part, label)] for part in splits(setting, row)]
    # The average over the splits of a row first, then the spread over the seeds.
    return Spread.of(fmean(entry.best_accuracy or 0.0 for entry in seed) for seed in zip(*parts, strict=True))


def place(setting: Setting, row: PaperRow) -> Cells:
    """Return the first cells of a row: its dataset, and the split or those that it is the mean of."""
    if row.splits:
        split = f"mean of {', '.join(map(str, splits(setting, row)))}"
        missing = len(row.splits) - len(splits(setting, row))
        return {"dataset": row.dataset, "split": f"{split}; paper: and {missing} more" if missing else split}
    return {"dataset": row.dataset, "split": entry_key(row, row.split, "")[1]}


def entry_key(row: PaperRow, split: str | None, label: str) -> Key:
    """Return where :func:`run_table` has the runs of a variant on a row and split."""
    place = f"{split or 'as it comes'}{f', {row.clients} clients' if row.clients else ''}"
    return row.dataset, place, label
