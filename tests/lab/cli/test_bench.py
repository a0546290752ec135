"""``fedmr-med bench``."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedmr_med import cli
from tests.helpers.archives import write_mini
from tests.helpers.benchmarks import TINY
from tests.helpers.errors import printed_fault

SETTINGS = [text for key, value in TINY.items() for text in ("--set", f"{key}={json.dumps(value)}")]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Call the command as a shell would; return its exit code."""
    monkeypatch.setattr("sys.argv", ["fedmr-med", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def fmnist(tmp_path: Path) -> Path:
    write_mini("fmnist", tmp_path / "fmnist")
    return tmp_path / "fmnist"


def bench(data: Path, out: Path, *more: str) -> list[str]:
    return ["bench", "--dataset", "fmnist", "--data", str(data), "--out", str(out), "--split", "P5C2",
            "--model", "small_cnn", *SETTINGS, "--workers", "0", *more]  # fmt: skip


def test_json_is_all_that_goes_to_standard_output(
    fmnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, *bench(fmnist, out, "--methods", "fedavg,fedmr", "--seeds", "0,1", "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "results.json").read_text())
    assert [(entry["method"], entry["seed"]) for entry in printed["runs"]] == [
        ("fedavg", 0),
        ("fedavg", 1),
        ("fedmr", 0),
        ("fedmr", 1),
    ]


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
