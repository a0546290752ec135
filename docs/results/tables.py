"""Fills in the tables of docs/results.md from the runs that are committed beside it: ``python docs/results/tables.py``.

A table stands below a comment ``<!-- FILE SPLIT -->`` and an empty line. Its rows are in the order of the runs of that
file, and each is held against the first; ``<!-- flamby/FILE -->`` is a comparison with FLamby. A test compares.
"""

import re
from pathlib import Path

from fedmr_med.evaluation.results import RunResult, RunResults, read_result
from fedmr_med.evaluation.seeds import Spread, rows
from fedmr_med.lab.bench.paired import Gap, differences
from fedmr_med.lab.flamby.results import FlambyResults
from fedmr_med.lab.flamby.tables import spreads

FOLDER = Path(__file__).parent
PAGE = FOLDER.with_suffix(".md")
HEADING = (
    "| | seeds | last five | first row ahead by | with head | first row ahead by | head ahead of last model by |",
    "|---|---|---|---|---|---|---|",
)
PLACE = re.compile(r"(?m)^<!-- (\S+\.json) (\S+) -->\n\n(?:\|.*\n)*\n?")
FLAMBY = re.compile(r"(?m)^<!-- (flamby/\S+\.json) -->\n\n(?:\|.*\n)*\n?")


def filled(page: str) -> str:
    """Return a page with its tables made anew."""
    page = FLAMBY.sub(lambda found: "\n".join((f"<!-- {found[1]} -->", "", *flamby_table(found[1]), "", "")), page)
    return PLACE.sub(
        lambda found: "\n".join((f"<!-- {found[1]} {found[2]} -->", "", *table(found[1], found[2]), "", "")), page
    )


def flamby_table(file: str) -> list[str]:
    """Return the table of a comparison with FLamby, by the dataset's own metric in percent, as lines."""
    made = ["| | trained by | pooled test | mean of the centers |", "|---|---|---|---|"]
    for (method, source, _), scores in spreads(read_result(FOLDER / file, FlambyResults).rows).items():
        pooled, *centers = scores.values()
        mean = Spread.of(center.mean for center in centers)
        made.append(f"| {method} | {source} | {_figure(pooled)} | {_figure(Spread(mean.mean))} |")
    return made


def table(file: str, split: str) -> list[str]:
    """Return a table of one split of a file, in percent, as lines."""
    runs = [run for run in read_result(FOLDER / file, RunResults).runs if (run.split or "all") == split]
    return [*HEADING, *lines(runs)]


def lines(runs: list[RunResult]) -> list[str]:
    """Return one line per label: balanced accuracy of the last five rounds and with head, each with its paired gap.

    Last what the first row delivers, with its head, has over what the others deliver without one: their last model.
    """
    gaps = {gap.label: (gap.last5, gap.head) for gap in differences(runs, runs[0].label)}
    heads = {run.seed: run.head_balanced_accuracy for run in runs if run.label == runs[0].label}
    made = []
    for row in rows(runs):
        last5, head = gaps.get(row.label, (None, None))
        trained, headed = map(row.over_seeds, ("last5_balanced_accuracy", "head_balanced_accuracy"))
        delivered = Gap.of([(_last(run), heads.get(run.seed)) for run in row.runs if row.label in gaps])
        figures = _figure(trained), _ahead(last5), _figure(headed), _ahead(head), _ahead(delivered)
        made.append(f"| {' | '.join((row.label, str(len(row.runs)), *figures))} |")
    return made


def _last(run: RunResult) -> float | None:
    return run.rounds[-1].balanced_accuracy if run.rounds else None


def _figure(spread: Spread | None) -> str:
    return "-" if spread is None else Spread(100 * spread.mean, spread.deviation and 100 * spread.deviation).text(1)


def _ahead(gap: Gap | None) -> str:
    """Return what the first row has over another; the gap is the other way round."""
    if gap is None:
        return "-"
    return f"{-100 * gap.mean:+.1f}" + ("" if gap.half_width is None else f" ± {100 * gap.half_width:.1f}")


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
