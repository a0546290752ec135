"""The tables of docs/results.md are those of the runs that are committed beside it."""

import runpy

import numpy as np
import pytest
from scipy.stats import t

from fedmr_med.evaluation.results import RunResults, read_result
from tests.helpers import REPOSITORY

DOCS = REPOSITORY / "docs"
TABLES = runpy.run_path(str(DOCS / "results" / "tables.py"))
PAGE = (DOCS / "results.md").read_text(encoding="utf-8")


def test_every_table_is_what_the_runs_gave() -> None:
    assert TABLES["filled"](PAGE) == PAGE, "run python docs/results/tables.py"


def test_all_committed_runs_are_in_a_table() -> None:
    shown = set(TABLES["PLACE"].findall(PAGE))
    committed = {
        (path.name, run.split or "all")
        for path in (DOCS / "results").glob("*.json")
        for run in read_result(path, RunResults).runs
    }
    assert shown == committed != set()


def test_a_changed_figure_is_found() -> None:
    """So that the comparison above can fail."""
    row = next(line for line in PAGE.splitlines() if line.startswith("| fedmr"))
    changed = PAGE.replace(row, row.replace("±", "+"))
    assert changed != PAGE == TABLES["filled"](changed)


def test_the_readme_repeats_figures_of_this_page() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    measured = PAGE.split("fmnist_mlp.json P10C3")[1].split("<!--")[0]
    cells = [line.strip("| ").split(" | ") for line in measured.splitlines() if line.startswith("| ")]
    there = {row[0]: (row[2], row[4]) for row in cells if len(row) == 7}
    rows = [line.strip("| ").split(" | ") for line in readme.splitlines() if line.startswith("| fed")]
    assert len(rows) == 4
    for method, last_five, head in rows:
        assert there[method] == (last_five, head), method


@pytest.mark.parametrize("file", ["fmnist_mlp.json", "cifar10_small_cnn.json"])
@pytest.mark.parametrize("split", ["P10C3", "P5C2"])
@pytest.mark.parametrize("other", ["fedmr, default, nobody shares", "fedlmd"])
def test_what_is_delivered_is_ahead_as_the_page_says(file: str, split: str, other: str) -> None:
    """The last head where all share, less the last model of the same seed: where nobody shares, or of a rival."""
    heads, trained = {}, {}
    for run in read_result(DOCS / "results" / file, RunResults).runs:
        if run.split == split and run.label == "fedmr, default, all share":
            heads[run.seed] = run.head_balanced_accuracy
        elif run.split == split and run.label.startswith(other):
            trained[run.seed] = run.rounds[-1].balanced_accuracy
    gains = np.array([100 * (heads[seed] - trained[seed]) for seed in sorted(heads)])
    assert len(gains) == 5
    half = t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5
    assert f"{gains.mean():+.1f} ± {half:.1f} |" in PAGE
    assert gains.mean() > half
