"""Every answer of a model leaves a line at the hospital that names nobody, and the lines add up to a period."""

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fedmr_med.files import journal
from fedmr_med.models.model_file import load_model
from fedmr_med.version import __version__
from tests.helpers.command_line import run as command
from tests.helpers.errors import printed_fault
from tests.helpers.models import some_pictures
from tests.helpers.pictures import write_csv

KEYS = {"time", "use", "version", "model", "image", "answer", "probabilities"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the journal is by default."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fedmr_med" / "use.jsonl"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lines(path: Path) -> tuple[dict[str, Any], ...]:
    found = journal.read(path)
    assert found.problems == ()
    return found.entries


def test_a_prediction_leaves_a_line_for_each_image(
    run: Path, pictures: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = run / "best_model.pt", tmp_path / "p.csv"
    assert command(monkeypatch, "predict", str(model), str(pictures), "-o", str(out)) == 0
    found = lines(home)
    assert [line["image"] for line in found] == [
        sha256(pictures / name) for name in ("a.png", "b.jpg", "c.tiff", "more/d.png")
    ], "what cannot be read was not answered"
    names = load_model(model).job.task.class_names
    answers = [row.split(",")[1] for row in out.read_text().splitlines()[1:] if "broken" not in row]
    for line, answer in zip(found, answers, strict=True):
        assert line.keys() == KEYS
        assert (line["use"], line["version"], line["model"]) == ("predict", __version__, sha256(model))
        assert line["answer"] == answer == names[line["probabilities"].index(max(line["probabilities"]))]
        assert line["time"].endswith("Z") and sum(line["probabilities"]) == pytest.approx(1, abs=1e-4)


def test_no_name_is_in_the_journal_and_nobody_else_reads_it(
    run: Path, pictures: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, "predict", str(run / "best_model.pt"), str(pictures), "-o", str(tmp_path / "p.csv"))
    text = home.read_text()
    for name in ("a.png", "b.jpg", "c.tiff", "d.png", "broken", "best_model", str(tmp_path), str(pictures)):
        assert name not in text
    assert stat.S_IMODE(home.stat().st_mode) == 0o600 and stat.S_IMODE(home.parent.stat().st_mode) == 0o700


def test_an_evaluation_leaves_lines_too_and_not_the_labels(
    run: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = some_pictures(tmp_path / "hospital")
    rows: list[tuple[object, ...]] = [(name, "NV", "test") for name in ("a.png", "b.jpg")]
    write_csv(pictures / "manifest.csv", ("image", "label", "fold"), rows)
    arguments = ["evaluate", str(run / "best_model.pt"), str(pictures / "manifest.csv"), "-o", str(tmp_path / "out")]
    assert command(monkeypatch, *arguments) == 0
    found = lines(home)
    assert [(line["use"], line["image"]) for line in found] == [
        ("evaluate", sha256(pictures / name)) for name in ("a.png", "b.jpg")
    ]
    assert all(line.keys() == KEYS for line in found)


def test_the_journal_is_another_file_or_none_where_that_is_said(
    run: Path, pictures: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["predict", str(run / "best_model.pt"), str(pictures), "-o", str(tmp_path / "p.csv")]
    assert command(monkeypatch, *arguments, "--no-journal") == 0
    assert not home.exists()
    assert command(monkeypatch, *arguments, "--journal", str(tmp_path / "kept" / "mine.jsonl")) == 0
    assert len(lines(tmp_path / "kept" / "mine.jsonl")) == 4 and not home.exists()


def test_without_a_line_there_is_no_answer(
    run: Path,
    pictures: Path,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "p.csv"
    arguments = ["predict", str(run / "best_model.pt"), str(pictures), "-o", str(out), "--json"]
    (tmp_path / "file").write_text("no folder")
    assert command(monkeypatch, *arguments, "--journal", str(tmp_path / "file" / "use.jsonl")) == 2
    assert printed_fault(capsys) == ("file.not-writable", "--journal")

    def full(_descriptor: int) -> None:
        if home.stat().st_size:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert command(monkeypatch, *arguments) == 2
    assert printed_fault(capsys) == ("file.not-writable", "--journal")
    assert not out.exists()


def test_a_line_that_was_cut_short_is_no_obstacle(
    run: Path, pictures: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a power cut leaves it: the answers for it were not handed out."""
    arguments = ["predict", str(run / "best_model.pt"), str(pictures), "-o", str(tmp_path / "p.csv")]
    command(monkeypatch, *arguments)
    home.write_bytes(home.read_bytes()[:-30])
    assert command(monkeypatch, *arguments) == 0
    assert len(lines(home)) == 3 + 4 and journal.read(home).torn == (4,)
