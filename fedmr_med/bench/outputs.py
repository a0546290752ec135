"""What a comparison leaves behind: ``results.json``, ``curves.png``, ``report.html`` and a table on the screen."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from fedmr_med.bench.summary import Row, Spread, rows
from fedmr_med.files import write_text
from fedmr_med.report.curves import accuracy_series, as_svg, draw_curves, save_png
from fedmr_med.report.html import Page, PageTable, Picture, render
from fedmr_med.report.summary import DEMO_NOTE

RESULTS, CURVES, REPORT = "results.json", "curves.png", "report.html"
COLUMNS = ("method", "seeds", "best", "last", "mean of last 5", "balanced, best", "s / round", "MB / round")
CAPTION = (
    "Accuracy on the common test set in percent, mean ± standard deviation over the seeds. Time is wall time of a "
    "round with all runs side by side; traffic is what all clients of a round send and receive."
)


def write_outputs(folder: Path, results: Sequence[dict[str, Any]], title: str) -> None:
    """Write the three files into ``folder``."""
    write_text(folder / RESULTS, json.dumps({"runs": results}, indent=1))
    figure = draw_curves(accuracy_series(results), ylabel="accuracy, %", title=title)
    save_png(figure, folder / CURVES)
    summary = rows(results)
    page = Page(
        title=title,
        notes=[*([DEMO_NOTE] if results[0]["demo"] else []), _setup(results[0])],
        tables=[
            PageTable("Accuracy", COLUMNS, [cells(row) for row in summary], CAPTION),
            PageTable("Every run", ("method", "seed", "best", "in round", "last"), [_run_cells(r) for r in results]),
        ],
        pictures=[Picture("Accuracy by round", as_svg(figure))],
        errors=[f"{row.label}, {error}" for row in summary for error in row.errors],
    )
    write_text(folder / REPORT, render(page))


def screen_table(results: Sequence[dict[str, Any]], title: str) -> Table:
    """Return the table over the seeds for the terminal."""
    table = Table(title=title, caption=f"{DEMO_NOTE}\n{CAPTION}" if results[0]["demo"] else CAPTION)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for row in rows(results):
        table.add_row(*cells(row))
    return table


def cells(row: Row) -> list[str]:
    """Return a row as text, in the order of :data:`COLUMNS`."""
    figures = [_percent(spread) for spread in (row.best, row.last, row.last5, row.balanced)]
    return [row.label, str(row.seeds), *figures, f"{row.seconds:.1f}", f"{row.megabytes:.1f}"]


def _percent(spread: Spread | None) -> str:
    return spread.percent() if spread else "failed"


def _run_cells(run: dict[str, Any]) -> list[str]:
    if "error" in run:
        return [run["label"], str(run["seed"]), "failed", "failed", "failed"]
    accuracies = (f"{100 * run[key]:.2f}" for key in ("best_accuracy", "last_accuracy"))
    best, last = accuracies
    return [run["label"], str(run["seed"]), best, str(run["best_round"]), last]


def _setup(run: dict[str, Any]) -> str:
    """Return the settings that all runs have in common, in a sentence."""
    train = run["train"]
    budget = f"{train['epochs']} local epochs" if train["epochs"] else f"{train['updates']} local steps"
    return (
        f"{run['dataset']}, {run['split'] or 'as the sites hold it'}: {run['clients']} clients, "
        f"{run['clients_per_round']} in a round, {100 * run['fraction']:g} % of the training data; {run['model']}, "
        f"{train['optimizer']} lr {train['lr']:g}, batch {train['batch_size']}, {budget}; "
        f"{100 * run['share']:g} % of the clients share prototypes; BatchNorm statistics: {run['buffers']}."
    )
