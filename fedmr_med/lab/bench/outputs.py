"""What a comparison leaves behind: ``results.json``, ``curves.png``, ``report.html`` and a table on the screen."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from fedmr_med.config import TrainConfig
from fedmr_med.evaluation.results import RunResult, RunResults, RunSetup, write_result
from fedmr_med.files import write_text
from fedmr_med.lab.bench.paired import Difference, differences
from fedmr_med.lab.bench.summary import Row, rows
from fedmr_med.report.console import text_table
from fedmr_med.report.curves import accuracy_series, as_svg, draw_curves, save_png
from fedmr_med.report.html import Page, PageTable, Picture, render
from fedmr_med.report.metrics import BY_METHOD, by_method
from fedmr_med.report.summary import DEMO_NOTE

RESULTS, CURVES, REPORT = "results.json", "curves.png", "report.html"
COLUMNS = (
    *("method", "seeds", "best", "last", "mean of last 5", "with head", "balanced, best", "balanced, head"),
    *("s / round", "MB / round"),
)
CAPTION = (
    "Accuracy on {scored_on} in percent, mean ± standard deviation over the seeds. With head: the last model "
    "with a closed-form classifier from the sites' class statistics. Time is wall time of a "
    "round with all runs side by side; traffic is what all clients of a round send and receive. A run without rounds "
    "has its one exchange there."
)
DIFFERENCE_COLUMNS = ("method", "seeds", "mean of last 5", "with head", "rounds to its best", "MB to its best")
DIFFERENCE_CAPTION = (
    "In percentage points, paired by seed, with the 95 % interval by Student's t distribution. Rounds and MB to its "
    "best: until a method first has the best accuracy that the first method of the table reaches in the whole run."
)


def write_outputs(folder: Path, results: Sequence[RunResult], title: str) -> None:
    """Write the three files into ``folder``."""
    write_result(folder / RESULTS, RunResults(runs=tuple(results)))
    figure = draw_curves(accuracy_series(results), ylabel="accuracy, %", title=title)
    save_png(figure, folder / CURVES)
    summary = rows(results)
    page = Page(
        title=title,
        notes=[*([DEMO_NOTE] if results[0].demo else []), _setup(results[0]), *runaways(results)],
        tables=[
            PageTable("Accuracy", COLUMNS, [cells(row) for row in summary], caption(results[0])),
            *_more_tables(results),
            PageTable("Every run", ("method", "seed", "best", "in round", "last"), [_run_cells(r) for r in results]),
        ],
        pictures=[Picture("Accuracy by round", as_svg(figure))],
        errors=[f"{row.label}, {error}" for row in summary for error in row.errors],
    )
    write_text(folder / REPORT, render(page))


def screen_table(results: Sequence[RunResult], title: str) -> Table:
    """Return the table over the seeds for the terminal."""
    below = [*([DEMO_NOTE] if results[0].demo else []), caption(results[0]), *runaways(results)]
    return text_table(title, COLUMNS, map(cells, rows(results)), caption="\n".join(below))


def runaways(results: Sequence[RunResult]) -> list[str]:
    """Return a sentence for each run whose features ran away from their prototypes."""
    return [
        f"{run.label}, seed {run.seed}: features ran away from their prototypes, noticed in round {run.runaway_round}."
        for run in results
        if run.runaway_round is not None
    ]


def caption(run: RunSetup) -> str:
    """Return what the figures of a table are, given one of its runs."""
    held_out = f"{100 * run.held_out:g} % of each client's training data, held out, and not on the test set"
    return CAPTION.format(scored_on=held_out if run.held_out else "the common test set")


def cells(row: Row) -> list[str]:
    """Return a row as text, in the order of :data:`COLUMNS`."""
    missing = "-" if row.seeds else "failed"
    best, last, last5, balanced = (
        spread.percent() if spread else missing for spread in (row.best, row.last, row.last5, row.balanced)
    )
    head, head_balanced = (spread.percent() if spread else "-" for spread in (row.head, row.head_balanced))
    costs = f"{row.seconds:.1f}", f"{row.megabytes:.1f}"
    return [row.label, str(row.seeds), best, last, last5, head, balanced, head_balanced, *costs]


def screen_more_tables(results: Sequence[RunResult]) -> list[Table]:
    """Return the tables below the first for the terminal."""
    return [text_table(t.title, t.columns, t.rows, caption=t.caption) for t in _more_tables(results)]


def _more_tables(results: Sequence[RunResult]) -> list[PageTable]:
    """Return every metric by method, and what the other methods have over the first; none that would be empty."""
    first = results[0].label
    compared = [_difference_cells(difference) for difference in differences(results, first)]
    tables = [
        PageTable(BY_METHOD, *by_method(results)),
        PageTable(f"Compared with {first}", DIFFERENCE_COLUMNS, compared, DIFFERENCE_CAPTION),
    ]
    return [table for table in tables if table.rows]


def _difference_cells(difference: Difference) -> list[str]:
    width = "" if difference.half_width is None else f" ± {100 * difference.half_width:.1f}"
    return [
        difference.label,
        str(difference.seeds),
        f"{100 * difference.mean:+.1f}{width}",
        "-" if difference.head is None else f"{100 * difference.head:+.1f}",
        "not reached" if difference.rounds is None else f"{difference.rounds:.1f}",
        "-" if difference.megabytes is None else f"{difference.megabytes:.1f}",
    ]


def _run_cells(run: RunResult) -> list[str]:
    missing = "not scored" if run.error is None else "failed"
    best, last = (
        missing if value is None else f"{100 * value:.2f}" for value in (run.best_accuracy, run.last_accuracy)
    )
    return [run.label, str(run.seed), best, missing if run.best_round is None else str(run.best_round), last]


def _setup(run: RunResult) -> str:
    """Return the settings that all runs have in common, in a sentence."""
    train = TrainConfig.model_validate(run.train)
    budget = f"{train.epochs} local epochs" if train.epochs else f"{train.updates} local steps"
    return (
        f"{run.dataset}, {run.split or 'as the sites hold it'}: {run.clients} clients, {run.clients_per_round} in a "
        f"round, {100 * run.fraction:g} % of the training data; {run.model}, {train.optimizer} lr {train.lr:g}, "
        f"batch {train.batch_size}, {budget}; {100 * run.share:g} % of the clients share prototypes; BatchNorm "
        f"statistics: {run.buffers}."
    )
