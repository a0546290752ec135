"""What monitoring reads: does the kit's process run, and will it go on to?"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from fedmr_med.cli.site import app
from fedmr_med.deploy.health import health
from fedmr_med.files import journal
from tests.helpers.kits import expire


@contextmanager
def running(kit: Path) -> Iterator[int]:
    """Run a process that looks like FLARE's client of a kit."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", "client_train", "-m", str(kit.resolve())]
    process = subprocess.Popen(command)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_kit_at_work(kits: Path) -> None:
    journal.append(kits / "msk" / "released.jsonl", {"time": "2026-11-17T18:00:00Z"})
    with running(kits / "msk") as pid:
        found = health(kits / "msk")
    assert (found.ok, found.process, found.last_reply) == (True, pid, "2026-11-17T18:00:00Z")
    assert found.warnings == ()


def test_a_kit_that_does_not_run_or_has_expired(kits: Path) -> None:
    expire(kits / "msk")
    found = health(kits / "msk")
    assert found.problems[0] == "it does not run"
    assert found.problems[1].startswith("its certificate expired on")


def test_two_processes_of_one_kit(kits: Path) -> None:
    with running(kits / "msk"), running(kits / "msk"):
        assert "2 processes run from this kit" in health(kits / "msk").problems


def test_the_status_file_and_the_exit_code(kits: Path, tmp_path: Path) -> None:
    out = tmp_path / "status.json"
    result = CliRunner().invoke(app, ["health", "--kit", str(kits / "server"), "--out", str(out)])
    assert result.exit_code == 1
    assert "NOT OK: not running; it does not run" in result.stdout
    content = json.loads(out.read_text())
    assert content["ok"] is False
    assert content["disk_free_gb"] > 0
