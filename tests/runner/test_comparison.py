"""A comparison from Python: rows of plain values, the same as the results file has."""

import sys
from pathlib import Path

import pytest

from fedmr_med import bench, load_results
from fedmr_med.errors import ConfigError
from tests.helpers.benchmarks import TINY
from tests.helpers.errors import raises


@pytest.mark.slow
def test_a_comparison_is_one_call_and_gives_rows(fmnist: Path, tmp_path: Path) -> None:
    tables = bench(
        "fmnist",
        out=tmp_path,
        data=fmnist,
        split="P5C2",
        methods=["fedavg", "fedmr"],
        model="small_cnn",
        settings=TINY,
        seeds=[0, 1],
        workers=0,
    )
    assert [(row["method"], row["seed"]) for row in tables.runs] == [
        (m, s) for m in ("fedavg", "fedmr") for s in (0, 1)
    ]
    assert len(tables.rounds) == 4 * TINY["federation.rounds"]
    for rows in (tables.runs, tables.rounds):
        assert len({tuple(row) for row in rows}) == 1, "every row has the same columns"
        assert all(value is None or isinstance(value, str | int | float) for row in rows for value in row.values())
    last = [row["accuracy"] for row in tables.rounds if row["seed"] == 1][-1]
    assert tables.runs[-1]["last_accuracy"] == last
    assert load_results(tmp_path) == load_results(tmp_path / "results.json") == tables
    assert (tmp_path / "report.html").is_file()


def test_a_wrong_argument_is_named(tmp_path: Path) -> None:
    with raises("config.less-than-equal", "share", kind=ConfigError):
        bench("fmnist", out=tmp_path, share=2)


def test_without_the_lab_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fedmr_med.lab.bench.compare", None)
    with raises("lab.missing", kind=ConfigError):
        bench("fmnist", out=tmp_path)
