"""What a comparison leaves behind: ``results.json``, ``report.html`` and a table on the screen."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from fedmr_med.evaluation.results import RunResult, RunResults, write_result
from fedmr_med.evaluation.seeds import rows
from fedmr_med.files import write_text
from fedmr_med.lab.bench.paired import Gap, differences
from fedmr_med.report.console import text_table
from fedmr_med.report.document import Part, page_of
from fedmr_med.report.elements import DEMO_NOTE, Section, table
from fedmr_med.report.pages.comparison import COLUMNS, caption, cells, methods, remarks
from fedmr_med.report.pages.metrics import BY_METHOD, by_method
from fedmr_med.report.sources import Comparison

RESULTS, REPORT = "results.json", "report.html"
DIFFERENCE_COLUMNS = ("method", "seeds", "mean of last 5", "with head", "rounds to its best", "MB to its best")
DIFFERENCE_CAPTION = (
    "Balanced accuracy in percentage points, paired by seed, with the 95 % interval by Student's t distribution. "
    "Rounds and MB to its best: until a method first has the best balanced accuracy that the first method of the table "
    "reaches in the whole run."
)
RUN_COLUMNS = ("method", "seed", "best", "in round", "last")


def write_outputs(folder: Path, results: Sequence[RunResult], title: str) -> None:
    """Write the two files into ``folder``."""
    write_result(folder / RESULTS, RunResults(runs=tuple(results)))
    against = _differences(results)
    every = table("Accuracy of every run, in percent", RUN_COLUMNS, [_run_cells(run) for run in results])
    sections = [methods(Comparison(folder, tuple(results))), Section("runs", "Every run", every)]
    if against:
        compared = table(DIFFERENCE_CAPTION, DIFFERENCE_COLUMNS, against)
        sections.insert(1, Section("differences", f"Compared with {results[0].label}", compared))
    part = Part("bench", title, results[0].demo, tuple(sections))
    write_text(folder / REPORT, page_of([part]))


def screen_tables(results: Sequence[RunResult], title: str) -> Iterator[Table]:
    """Yield for the terminal: figures over the seeds, every metric, what the other methods have over the first."""
    below = [*([DEMO_NOTE] if results[0].demo else []), caption(results[0]), *remarks(results)]
    yield text_table(title, COLUMNS, map(cells, rows(results)), caption="\n".join(below))
    metric_columns, metric_rows = by_method(results)
    if metric_rows:
        yield text_table(BY_METHOD, metric_columns, metric_rows)
    if against := _differences(results):
        yield text_table(f"Compared with {results[0].label}", DIFFERENCE_COLUMNS, against, caption=DIFFERENCE_CAPTION)


def _differences(results: Sequence[RunResult]) -> list[list[str]]:
    """Return the rows of what the other methods have over the first; none if there is nothing to compare."""
    cells = []
    for found in differences(results, results[0].label):
        rounds = "not reached" if found.rounds is None else f"{found.rounds:.1f}"
        megabytes = "-" if found.megabytes is None else f"{found.megabytes:.1f}"
        cells.append([found.label, str(found.seeds), _gap(found.last5), _gap(found.head), rounds, megabytes])
    return cells


def _gap(gap: Gap | None) -> str:
    if gap is None:
        return "-"
    width = "" if gap.half_width is None else f" ± {100 * gap.half_width:.1f}"
    return f"{100 * gap.mean:+.1f}{width}"


def _run_cells(run: RunResult) -> list[str]:
    missing = "not scored" if run.error is None else "failed"
    best, last = (
        missing if value is None else f"{100 * value:.2f}" for value in (run.best_accuracy, run.last_accuracy)
    )
    return [run.label, str(run.seed), best, missing if run.best_round is None else str(run.best_round), last]
