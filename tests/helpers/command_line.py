"""``fedmr-med`` called in this process, as a shell would."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fedmr_med import cli
from tests.helpers.benchmarks import TINY

SETTINGS = [text for key, value in TINY.items() for text in ("--set", f"{key}={json.dumps(value)}")]


def call(*words: object, code: int = 0, app: typer.Typer = cli.app) -> Result:
    """Call the command, or a group of its own, and return what it printed; an error is raised as it is."""
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Call the command as a shell would; return its exit code."""
    monkeypatch.setattr("sys.argv", ["fedmr-med", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def bench(data: Path, out: Path, *more: str) -> list[str]:
    """Return the arguments of a comparison of a few steps on a mini Fashion-MNIST."""
    return ["bench", "--dataset", "fmnist", "--data", str(data), "--out", str(out), "--split", "P5C2",
            "--model", "small_cnn", *SETTINGS, "--workers", "0", *more]  # fmt: skip
