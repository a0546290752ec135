"""What a comparison leaves behind: FLamby's CSV, JSON with notes, and a table with the published numbers beside."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from rich.table import Table

from fedmr_med.data.tables import table_text
from fedmr_med.evaluation.results import write_result
from fedmr_med.evaluation.seeds import Spread
from fedmr_med.files import write_text
from fedmr_med.lab.flamby.checkout import Result, published
from fedmr_med.lab.flamby.data import ComparisonData
from fedmr_med.lab.flamby.request import POOLED, CompareRequest, site_name
from fedmr_med.lab.flamby.results import METRICS, FlambyResults, Row
from fedmr_med.lab.flamby.runs import Training
from fedmr_med.report.console import text_table
from fedmr_med.report.document import page_of, part
from fedmr_med.report.elements import DEMO_NOTE, Section, figure, join, legend
from fedmr_med.report.sources import find_sources
from fedmr_med.report.svg import bars

RESULTS, TABLE, REPORT = "results.json", "results.csv", "report.html"
CYCLIC = "FLamby's Cyclic never passes weights on: its row is the first centre, trained alone with its turns."
# FLamby has one row per method, test and seed, and its own models carry the statistics of the first centre.
_AVERAGED = "-bn-average-"
LABELS = {"Cyclic": "Cyclic (no exchange)"}
COLUMNS = (
    "Test", "Method", "Metric", "seed",
    "learning_rate", "optimizer_class", "mu", "mu1", "mu2", "server_learning_rate", "deterministic_cycle",
    "tau", "beta1", "beta2", "variant", "hidden",
    "source", "bn",
)  # fmt: skip


def published_rows(results: Mapping[str, Result], metric: str, differs: Iterable[str]) -> list[Row]:
    """Return published numbers by a metric as rows, each with what differs from this comparison."""
    return [
        Row(
            method=method,
            source="published",
            bn="own" if method.startswith(("Local", "Pooled")) else "first",
            test=test,
            seed=None,
            std=result.std if test == POOLED else None,
            differs=tuple(differs),
            **{metric: value},
        )
        for method, result in results.items()
        for test, value in [(POOLED, result.pooled), *((site_name(c), v) for c, v in enumerate(result.centers))]
    ]


def differences(request: CompareRequest) -> list[str]:
    """Return in what the published numbers were made differently."""
    theirs = published().protocol
    ours = {key: getattr(request, key) for key in theirs}
    budget = f"{theirs['rounds']} rounds x {theirs['updates']} updates of {theirs['batch']} images at 200 px, 5 seeds"
    here = f"{ours['rounds']} x {ours['updates']} of {ours['batch']} at {ours['image_size']} px"
    lines = [
        "images: ISIC2019's originals; here "
        + ("generated pictures of the demo" if request.is_demo else "what the folder holds"),
        "weights: ImageNet's; here " + (str(request.pretrained.name) if request.pretrained else "random ones"),
        f"BatchNorm: statistics of the first centre alone; here {' and '.join(request.policies)}",
        f"budget: {budget}; here {here}, seeds {', '.join(map(str, request.seeds))}",
        "local and pooled training: 20 epochs of Adam; here as many steps of SGD as a centre, or all of them, get",
    ]
    if request.centers != tuple(range(6)):
        lines.append(f"centres: all six; here {', '.join(map(str, request.centers))}")
    if request.max_test or request.without_leaked:
        lines.append("test images: all of them; here a part")
    return lines


def notes(request: CompareRequest, data: ComparisonData, runs: Sequence[Training]) -> list[str]:
    """Return what a reader has to know besides the numbers."""
    lines = [
        *([DEMO_NOTE] if request.is_demo else []),
        "Balanced accuracy over the classes present in a test set; pooled: on the test images of all centres.",
        "BN: average: BatchNorm statistics averaged over the centres; first: those of the first centre, as FLamby "
        "scores its models; own: one training, nothing to merge.",
    ]
    if data.leakage is not None:
        lines.append(data.leakage.sentence(request.without_leaked))
    if any(run.method == "Cyclic" for run in runs):
        lines.append(CYCLIC)
    return lines + [f"Published numbers differ in {line}." for line in differences(request)]


def write_outputs(folder: Path, results: FlambyResults) -> None:
    """Write ``results.json``, our and FLamby's rows as ``results.csv``, and ``report.html``."""
    write_result(folder / RESULTS, results)
    rows = [row for row in results.rows if row.source != "published"]
    content = (_csv_row(row, results.updates) for row in rows)
    text = table_text(COLUMNS, ([cells.get(column, "") for column in COLUMNS] for cells in content))
    write_text(folder / TABLE, text)
    (source,) = find_sources(folder / RESULTS)
    report = part(source, "flamby")
    sections = (_chart(rows, results.request.dataset), *report.sections) if rows else report.sections
    write_text(folder / REPORT, page_of([replace(report, sections=sections)]))


def spreads(rows: Iterable[Row]) -> dict[tuple[str, str, str], dict[str, Spread]]:
    """Return by method, source and BatchNorm policy, and by test set, the score over the seeds."""
    groups: dict[tuple[str, str, str], dict[str, list[Row]]] = {}
    for row in rows:
        groups.setdefault((row.method, row.source, row.bn), {}).setdefault(row.test, []).append(row)
    return {group: {test: _spread(found) for test, found in tests.items()} for group, tests in groups.items()}


def _spread(rows: Sequence[Row]) -> Spread:
    """Return the score over the seeds; a published one has its spread with it."""
    first = rows[0]
    return Spread.of(row.score for row in rows) if first.std is None else Spread(first.score, first.std)


def _chart(rows: Sequence[Row], dataset: str) -> Section:
    """Return FLamby's bar plot: one bar per method and test set, with the spread over the seeds."""
    tests = list(dict.fromkeys(row.test for row in rows))
    heights = {}
    for (method, source, bn), scores in spreads(rows).items():
        label = method if source == "ours" else f"{method} ({source})"
        found = [scores.get(test) for test in tests]
        heights[label if bn == "own" else f"{label}, BN {bn}"] = [
            None if f is None else (f.mean, f.deviation or 0.0) for f in found
        ]
    metric = METRICS[rows[0].metric]
    title = f"{dataset}: {metric} by method and test set"
    chart = figure(bars(title, tests, heights, ylabel=metric), title)
    return Section("bars", dataset, join([legend(list(heights)), chart]))


def _csv_row(row: Row, updates: int) -> dict[str, object]:
    """Return a row under FLamby's names: tests by the number of the centre, strategies with their updates."""
    center = row.test.removeprefix("center-")
    settings = {key: value for key, value in (row.settings or {}).items() if key in COLUMNS}
    return {
        "Test": "Pooled Test" if row.test == POOLED else f"client_test_{center}",
        "Method": row.method if row.bn == "own" else f"{row.method}{_AVERAGED if row.bn == 'average' else ''}{updates}",
        "Metric": row.score,
        "seed": row.seed,
        "optimizer_class": str(torch.optim.SGD),
        "source": row.source,
        "bn": row.bn,
    } | settings


def screen_table(results: FlambyResults) -> Table:
    """Return all rows over the seeds for the terminal, the published ones last."""
    tests = results.request.tests
    columns = ("method", "source", "BN", *(test.replace("center-", "centre ") for test in tests), "mean of centres")
    metric = METRICS[results.rows[0].metric] if results.rows else ""
    title, note = f"{results.request.dataset}: {metric}", "\n".join(results.notes)
    table = text_table(title, columns, [], caption=note, names=3)
    table.caption_justify = "left"
    before = None
    for (method, source, bn), scores in spreads(results.rows).items():
        if before not in (None, source):
            table.add_section()
        before = source
        pooled, *centers = (scores.get(test) for test in tests)
        means = [center.mean for center in centers if center is not None]
        figures = ["-" if center is None else f"{center.mean:.3f}" for center in centers]
        whole = ["-" if pooled is None else pooled.text(3), *figures, f"{fmean(means):.3f}" if means else "-"]
        table.add_row(LABELS.get(method, method), source, bn, *whole)
    return table
