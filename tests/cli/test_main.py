"""What goes wrong is said in a sentence; a traceback is for whoever asks for it."""

import errno
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer

from fedmr_med import __version__, cli
from fedmr_med.errors import ConfigError
from tests.helpers.archives import write_mini
from tests.helpers.command_line import bench, run


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("command", [["-h"], ["bench", "-h"], ["site", "policy", "-h"]])
def test_h_is_help(monkeypatch: pytest.MonkeyPatch, capsys: Any, command: list[str]) -> None:
    assert run(monkeypatch, *command) == 0
    said = capsys.readouterr().out
    assert "Usage:" in said
    assert ("--install-completion" in said) == (command == ["-h"])


def commands(group: Any, path: tuple[str, ...] = ()) -> list[Any]:
    if hasattr(group, "commands"):
        return [found for name, part in group.commands.items() for found in commands(part, (*path, name))]
    return [pytest.param(group, id=" ".join(path))]


@pytest.mark.parametrize("command", commands(typer.main.get_command(cli.app)))
def test_every_command_speaks_json(command: Any) -> None:
    assert any("--json" in parameter.opts for parameter in command.params)


@pytest.mark.parametrize(
    ("error", "sentence", "code", "key"),
    [
        (OSError(errno.EROFS, "Read-only", "/out"), "/out: read-only; choose a folder", "system.erofs", None),
        (OSError(errno.ENOSPC, "No space left"), "no space left; free some space", "system.enospc", None),
        (PermissionError(errno.EACCES, "Denied", "x.csv"), "x.csv: denied; check who may", "system.eacces", None),
        (OSError(errno.EADDRINUSE, "In use"), "in use; another program uses this port", "system.eaddrinuse", None),
        (OSError("no reason"), "no reason.", "system.error", None),
        (RuntimeError("odd"), "a defect of fedmr-med: RuntimeError: odd", "system.defect", None),
        (ConfigError("odd", code="config.value", key="train.lr"), "odd", "config.value", "train.lr"),
    ],
)
def test_an_error_is_a_sentence_or_an_object_and_debug_shows_where(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, error: Exception, sentence: str, code: str, key: str | None
) -> None:
    monkeypatch.setattr(cli, "app", Mock(side_effect=error))
    assert run(monkeypatch, "bench") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"fedmr-med: {sentence}")
    assert "Traceback" not in printed.err
    assert run(monkeypatch, "bench", "--debug") == 2
    assert "Traceback" in capsys.readouterr().err
    assert run(monkeypatch, "bench", "--json") == 2
    printed = capsys.readouterr()
    told = json.loads(printed.out)["error"]
    assert (told["code"], told["key"]) == (code, key)
    assert printed.err == f"fedmr-med: {told['message']}\n"


def test_an_output_that_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "file").write_text("")
    write_mini("fmnist", tmp_path / "fmnist")
    assert run(monkeypatch, *bench(tmp_path / "fmnist", tmp_path / "file" / "out", "--methods", "fedavg")) == 2
    assert "file" in capsys.readouterr().err
    assert not list(tmp_path.glob("**/runs"))
    assert run(monkeypatch, "paper", "toy", "--out", str(tmp_path / "file")) == 2
    assert "file: not a directory" in capsys.readouterr().err


def test_bench_does_not_mix_settings_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    write_mini("fmnist", tmp_path / "fmnist")
    out = tmp_path / "out"
    assert run(monkeypatch, *bench(tmp_path / "fmnist", out, "--methods", "fedavg", "--json")) == 0
    assert json.loads((out / "request.json").read_text())["rounds"] is None
    assert run(monkeypatch, *bench(tmp_path / "fmnist", out, "--methods", "fedavg", "--fraction", "0.5")) == 2
    assert "holds a comparison with other settings (fraction 1.0); choose another --out" in capsys.readouterr().err
