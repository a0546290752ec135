"""The tables of docs/results.md are those of the runs that are committed beside it."""

from itertools import groupby
from pathlib import Path

import pytest

from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.evaluation.seeds import Row, Spread, rows
from tests.helpers import REPOSITORY

DOCS = REPOSITORY / "docs"
COMMITTED = sorted((DOCS / "results").glob("*.json"))


def figure(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    deviation = "" if spread.deviation is None else f" ± {100 * spread.deviation:.1f}"
    return f"{100 * spread.mean:.1f}{deviation}"


def line(row: Row) -> str:
    return f"| {row.label} | {row.seeds} | {figure(row.best)} | {figure(row.last5)} | {figure(row.head)} |"


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_every_row_is_what_the_runs_gave(path: Path) -> None:
    page = (DOCS / "results.md").read_text(encoding="utf-8").replace("**", "")
    runs = read_result(path, RunResults).runs
    by_split = groupby(sorted(runs, key=lambda run: run.split or ""), key=lambda run: run.split)
    missing = [
        f"{split}: {line(row)}" for split, found in by_split for row in rows(list(found)) if line(row) not in page
    ]
    assert not missing, "rows that docs/results.md does not have:\n" + "\n".join(missing)


def test_there_are_committed_runs() -> None:
    assert COMMITTED
