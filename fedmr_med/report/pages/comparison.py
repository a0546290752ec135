"""Methods side by side: a bench, a study of the paper, a comparison with FLamby, or several runs."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from markupsafe import Markup

from fedmr_med.config import TrainConfig
from fedmr_med.evaluation.catalog import names_in
from fedmr_med.evaluation.results import RunResult, RunSetup
from fedmr_med.evaluation.seeds import Row, rows
from fedmr_med.report.elements import NONE, Section, bullets, figure, note, paragraph, table, two_lines
from fedmr_med.report.pages.metrics import BY_METHOD, by_method, headings
from fedmr_med.report.sources import ChainRun, Comparison, Tables
from fedmr_med.report.svg import lines

COLUMNS = (
    *("method", "seeds", "mean of last 5", "best", "with head"),
    *("accuracy, last 5", "accuracy, best", "accuracy, head", "s / round", "MB / round"),
)
_FIGURES = (
    *("last5_balanced_accuracy", "best_balanced_accuracy", "head_balanced_accuracy"),
    *("last5_accuracy", "best_accuracy", "head_accuracy"),
)
CAPTION = (
    "Balanced accuracy, then accuracy, on {scored_on} in percent, mean ± standard deviation over the seeds. With head: "
    "the last model with a closed-form classifier from the sites' class statistics. Time is wall time of a "
    "round with all runs side by side; traffic is what all clients of a round send and receive. A run without rounds "
    "has its one exchange there."
)


def methods(source: Comparison) -> Section:
    """Return the table and the curves of a comparison of methods."""
    first, summary = source.runs[0], rows(source.runs)
    failed = [f"{row.label}, {error}" for row in summary for error in row.errors]
    metric_columns, metric_rows = by_method(source.runs)
    return Section.of(
        "comparison",
        f"Methods on {first.dataset}",
        paragraph(_setup(first)),
        *map(note, remarks(source.runs)),
        table(caption(first), COLUMNS, [two_lines(cells(row)) for row in summary]),
        table(BY_METHOD, metric_columns, map(two_lines, metric_rows)) if metric_rows else None,
        paragraph("Some runs failed.", "loud") if failed else None,
        bullets(failed),
        seeds_chart("Balanced accuracy by round", seed_curves(source.runs), ylabel="balanced accuracy, %"),
    )


def cells(row: Row) -> list[str]:
    """Return a row as text, in the order of :data:`COLUMNS`."""
    missing = NONE if row.runs else "failed"
    figures = [spread.percent() if (spread := row.over_seeds(name)) else missing for name in _FIGURES]
    return [row.label, str(len(row.runs)), *figures, f"{row.seconds:.1f}", f"{row.megabytes:.1f}"]


def caption(run: RunSetup) -> str:
    """Return what the figures of a table are, given one of its runs."""
    held_out = f"{100 * run.held_out:g} % of each client's training data, held out, and not on the test set"
    return CAPTION.format(scored_on=held_out if run.held_out else "the common test set")


def remarks(runs: Sequence[RunResult]) -> list[str]:
    """Return a sentence for each run whose features ran away, that predicts one class, or that has no head."""
    sentences = []
    for run in runs:
        if run.runaway_round is not None:
            what = f"features ran away from their prototypes, noticed in round {run.runaway_round}"
            sentences.append(f"{run.label}, seed {run.seed}: {what}.")
        if run.one_class:
            sentences.append(f"{run.label}, seed {run.seed}: the last model takes every test image for one class.")
        if run.no_head is not None:
            sentences.append(f"{run.label}, seed {run.seed}: no closed-form head, since {run.no_head}.")
    return sentences


def seed_curves(runs: Sequence[RunResult], metric: str = "balanced_accuracy") -> dict[str, list[list[float]]]:
    """Return a score in percent by round of each seed, by label."""
    series: dict[str, list[list[float]]] = {}
    for run in runs:
        scores = [getattr(record, metric) for record in run.rounds]
        values = [100 * score for score in scores if score is not None]
        if values:
            series.setdefault(run.label or run.method, []).append(values)
    return series


def seeds_chart(title: str, series: Mapping[str, Sequence[Sequence[float]]], *, ylabel: str) -> Markup | None:
    """Return the mean over the seeds by round, with a band from the lowest to the highest; None without a curve.

    Args:
        series: by label, one sequence of values per seed; those of a label are drawn as far as all of them go.
    """
    if not series:
        return None
    means, bands = {}, {}
    for label, seeds in series.items():
        by_round = list(enumerate(zip(*seeds, strict=False), start=1))
        means[label] = [(float(number), fmean(values)) for number, values in by_round]
        if len(seeds) > 1:
            above = [(float(number), max(values)) for number, values in by_round]
            bands[label] = above + [(float(number), min(values)) for number, values in reversed(by_round)]
    chart = lines(title, means, xlabel="round", ylabel=ylabel, bands=bands)
    spread = ": mean over the seeds, with the range from the lowest to the highest" if bands else ""
    return figure(chart, f"{title}{spread}.", names=list(means))


def tables(source: Tables) -> list[Section]:
    """Return the tables of a study or of a comparison with FLamby."""
    sections = [
        Section(f"table{i}", title, _plain(title, content))
        for i, (title, content) in enumerate(source.tables)
        if content
    ]
    notes = bullets(source.notes)
    return [*sections, *([Section("notes", "What else to know", notes)] if notes else [])]


def side_by_side(runs: Sequence[ChainRun]) -> Section:
    """Return several runs in one table and one chart."""
    chosen = [run.final for run in runs]
    figures = [evaluation.pooled_figures if evaluation else None for evaluation in chosen]
    names = names_in(found.metrics for found in figures if found)
    lines_of_runs = []
    for run, found in zip(runs, figures, strict=True):
        result = run.result
        settled = (result.method, result.model or NONE, str(len(run.history.rounds)), str(result.seed))
        lines_of_runs.append((_name(run), *settled, *(found.text(name) if found else NONE for name in names)))
    columns = ("run", "method", "network", "rounds", "seed", *headings(names))
    series = {_name(run): run.curve for run in runs if run.curve}
    title = "Balanced accuracy of all hospitals together, run by run"
    chart = lines(title, series, xlabel="rounds done", ylabel="balanced accuracy", yrange=(0, 1))
    return Section.of(
        "side-by-side",
        "Side by side",
        table(title, columns, lines_of_runs),
        figure(chart, title, names=list(series)),
        paragraph("Intervals are of each run by itself: overlap says little about runs on the same test images."),
    )


def _name(run: ChainRun) -> str:
    result = run.result
    return f"{result.label or result.name or result.method} ({run.place.name})"


def _setup(run: RunResult) -> str:
    """Return the settings that all runs have in common, in a sentence."""
    place = f"{run.dataset}, {run.split or 'as the sites hold it'}"
    if not run.train:
        return f"{place}; {run.model}."
    train = TrainConfig.model_validate(run.train)
    budget = f"{train.epochs} local epochs" if train.epochs else f"{train.updates} local steps"
    return (
        f"{place}: {run.clients} clients, {run.clients_per_round} in a round, {100 * run.fraction:g} % of the training "
        f"data; {run.model}, {train.optimizer} lr {train.lr:g}, batch {train.batch_size}, {budget}; "
        f"{100 * run.share:g} % of the clients share prototypes; BatchNorm statistics: {run.buffers}."
    )


def _plain(title: str, content: Sequence[Mapping[str, Any]]) -> Markup:
    def cell(value: object) -> str:
        return NONE if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    cells = [tuple(map(cell, row.values())) for row in content]
    return table(title, [str(key).replace("_", " ") for key in content[0]], cells)
