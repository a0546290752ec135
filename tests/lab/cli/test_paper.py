"""``fedmr-med paper``."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import run
from tests.helpers.errors import printed_fault


def test_the_papers_figure_stands_beside_the_measured_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(monkeypatch, "paper", "motivation", "--out", str(tmp_path), "--json") == 0
    content = json.loads(capsys.readouterr().out)
    row = content["tables"][0]["rows"][0]
    assert row["shift, paper"] == "45.0 degrees"
    assert abs(float(row["shift, measured"].split()[0]) - 45) < 0.5


@pytest.mark.slow
def test_a_person_gets_a_table_and_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(monkeypatch, "paper", "mu1", "--out", str(tmp_path), "--set", "federation.rounds=1") == 0
    printed = capsys.readouterr().out
    assert "74.19" in printed
    assert "What differs from the paper's set-up" in printed
    assert "Generated data stands in for cifar10" in printed
    assert "federation.rounds 1" in printed


def test_unknown_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(monkeypatch, "paper", "nothing", "--out", str(tmp_path), "--json") == 2
    assert printed_fault(capsys) == ("config.unknown-name", "study")
    assert run(monkeypatch, "paper", "acc", "--budget", "huge", "--json") == 2
    assert printed_fault(capsys) == ("config.unknown-name", "--budget")
    assert run(monkeypatch, "paper", "acc", "--out", str(tmp_path), "--workers", "-1") == 2, "nothing would ever run"
