"""Methods side by side: a bench, a study of the paper, a comparison with FLamby, or several runs."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from markupsafe import Markup

from fedmr_med.evaluation.catalog import names_in
from fedmr_med.evaluation.results import RunResult
from fedmr_med.report.elements import (
    NONE,
    Section,
    bullets,
    figure,
    join,
    legend,
    number,
    paragraph,
    table,
)
from fedmr_med.report.metrics import BY_METHOD, by_method, headings
from fedmr_med.report.pages._run import final, history
from fedmr_med.report.sources import ChainRun, Comparison, Tables
from fedmr_med.report.svg import lines


def methods(source: Comparison) -> Section:
    """Return the table and the curves of a comparison of methods."""
    by_label: dict[str, list[RunResult]] = {}
    for run in source.runs:
        by_label.setdefault(run.label or run.method, []).append(run)
    rows = [_row(label, runs) for label, runs in by_label.items()]
    columns = ("method", "seeds", "best", "last", "mean of last 5", "with head", "s / round", "MB / round")
    first = source.runs[0]
    failed = [f"{run.label or run.method}, seed {run.seed}: {run.error}" for run in source.runs if run.error]
    series = {label: _mean_curve(runs) for label, runs in by_label.items()}
    series = {label: points for label, points in series.items() if points}
    title = "Accuracy by round, mean over the seeds"
    chart = figure(lines(title, series, xlabel="round", ylabel="accuracy"), title) if series else None
    metric_columns, metric_rows = by_method(source.runs)
    parts = [
        paragraph(f"{first.dataset}, {first.split or 'as the sites hold it'}; {first.model}."),
        table("Accuracy in percent, mean ± standard deviation over the seeds", columns, rows),
        table(BY_METHOD, metric_columns, metric_rows) if metric_rows else None,
        legend(list(series)) if series else None,
        chart,
        paragraph("Some runs failed.", "loud") if failed else None,
        bullets(failed) if failed else None,
    ]
    return Section("comparison", f"Methods on {first.dataset}", join(parts))


def tables(source: Tables) -> list[Section]:
    """Return the tables of a study or of a comparison with FLamby."""
    sections = [
        Section(f"table{i}", title, _plain(title, rows)) for i, (title, rows) in enumerate(source.tables) if rows
    ]
    notes = [Section("notes", "What else to know", bullets(source.notes))] if source.notes else []
    return [*sections, *notes]


def side_by_side(runs: Sequence[ChainRun]) -> Section:
    """Return several runs in one table and one chart."""
    chosen = [final(run) for run in runs]
    figures = [evaluation.pooled_figures if evaluation else None for evaluation in chosen]
    names = names_in(found.metrics for found in figures if found)
    rows = []
    for run, found in zip(runs, figures, strict=True):
        result = run.result
        settled = (result.method, result.model or NONE, str(len(history(run).rounds)), str(result.seed))
        rows.append((_name(run), *settled, *(found.text(name) if found else NONE for name in names)))
    columns = ("run", "method", "network", "rounds", "seed", *headings(names))
    series = {
        _name(run): [(float(e.round), e.pooled.balanced_accuracy) for e in history(run).evaluations if e.pooled]
        for run in runs
    }
    series = {name: points for name, points in series.items() if points}
    title = "Balanced accuracy of all hospitals together, run by run"
    chart = lines(title, series, xlabel="rounds done", ylabel="balanced accuracy", yrange=(0, 1))
    note = paragraph("Intervals are of each run by itself: overlap says little about runs on the same test images.")
    body = join([table(title, columns, rows), legend(list(series)), figure(chart, title), note])
    return Section("side-by-side", "Side by side", body)


def _name(run: ChainRun) -> str:
    result = run.result
    return f"{result.label or result.name or result.method} ({run.place.name})"


def _row(label: str, runs: Sequence[RunResult]) -> tuple[str, ...]:
    done = [run for run in runs if run.error is None]
    rounds = [r for run in done for r in run.rounds]
    return (
        label,
        str(len(done)),
        *(_spread([getattr(run, key) for run in done])
          for key in ("best_accuracy", "last_accuracy", "last5_accuracy", "head_accuracy")),
        number(fmean(r.seconds for r in rounds), 1) if rounds else NONE,
        number(fmean((r.bytes_up + r.bytes_down) / 1e6 for r in rounds), 1) if rounds else NONE,
    )  # fmt: skip


def _spread(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if not known:
        return NONE
    return f"{fmean(known):.2f}" + (f" ± {stdev(known):.2f}" if len(known) > 1 else "")


def _mean_curve(runs: Sequence[RunResult]) -> list[tuple[float, float]]:
    curves = [[r.accuracy for r in run.rounds if r.accuracy is not None] for run in runs if run.rounds]
    length = min((len(curve) for curve in curves), default=0)
    return [(float(i + 1), fmean(curve[i] for curve in curves)) for i in range(length)]


def _plain(title: str, rows: Sequence[Mapping[str, Any]]) -> Markup:
    cells = [tuple(NONE if value is None else _cell(value) for value in row.values()) for row in rows]
    return table(title, [str(key).replace("_", " ") for key in rows[0]], cells)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
