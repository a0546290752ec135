"""``fedmr-med bench``."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import bench, run
from tests.helpers.errors import printed_fault


@pytest.mark.slow
def test_json_is_all_that_goes_to_standard_output(
    fmnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, *bench(fmnist, out, "--methods", "fedavg,fedmr", "--seeds", "0,1", "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "results.json").read_text())
    runs = [(entry["method"], entry["seed"]) for entry in printed["runs"]]
    assert runs == [("fedavg", 0), ("fedavg", 1), ("fedmr", 0), ("fedmr", 1)]


def test_a_table_with_the_spread_over_the_seeds(
    fmnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(monkeypatch, *bench(fmnist, tmp_path / "out", "--methods", "fedavg", "--seeds", "0,1")) == 0
    printed = capsys.readouterr().out
    assert "fedavg" in printed
    assert "±" in printed
    assert "report.html" in printed


@pytest.mark.parametrize(
    ("more", "code", "key"),
    [
        (["--methods", "fedsgd"], "config.unknown-name", "method.name"),
        (["--seeds", "a"], "config.value", "--seeds"),
        (["--fraction", "0"], "config.greater-than", "fraction"),
        (["--set", "lr"], "config.form", "--set"),
        (["--set", "train.lr=fast"], "config.float-parsing", "train.lr"),
        (["--rounds", "0"], "config.greater-than-equal", "rounds"),
        (["--tune", "0", "--validate", "0.2"], "config.conflict", "--tune"),
    ],
)
def test_a_bad_request_gives_one_line_and_exit_code_2(
    more: list[str], code: str, key: str, fmnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(monkeypatch, *bench(fmnist, tmp_path / "out", *more)) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert not printed.out
    assert not (tmp_path / "out").exists()
    assert run(monkeypatch, *bench(fmnist, tmp_path / "out", *more, "--json")) == 2
    assert printed_fault(capsys) == (code, key)


def test_a_failed_run_gives_exit_code_2(
    fmnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    refused = ["--methods", "fedavg", "--set", "federation.max_norm=0.001", "--json"]
    assert run(monkeypatch, *bench(fmnist, tmp_path / "out", *refused)) == 2
    printed = capsys.readouterr()
    assert "1 of 1 runs failed" in printed.err
    assert "max_norm" in json.loads(printed.out)["runs"][0]["error"]
