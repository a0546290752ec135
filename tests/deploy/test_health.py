"""Whether a kit is at work: a client that was not restarted, a second one of the same name, and what monitoring reads.

The processes stand in for FLARE's client: what counts is their command line and when they started.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from fedmr_med.cli.site import app
from fedmr_med.deploy.health import health, rival, running_clients, stale_client
from fedmr_med.files import journal
from tests.helpers.federation import wait_for
from tests.helpers.kits import expire

CREATED = "{},000 - conn_manager - INFO - Connection [CN00001 127.0.0.1:1 => 127.0.0.1:2 SSL server] is created: PID: 9"


@contextmanager
def client(kit: Path) -> Iterator[subprocess.Popen[bytes]]:
    module = "nvflare.private.fed.app.client.client_train"
    # A name of its own: a real federation may run on this machine.
    command = [sys.executable, "-c", "input()", module, "-m", str(kit), "--set", f"uid=msk-{os.getpid()}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        # A process has no command line yet in the moment in which it takes the place of its parent's.
        wait_for(
            lambda: process.pid in [found.pid for found in running_clients(kit)], "the client is listed", seconds=30
        )
        yield process
        process.communicate(b"\n")


def test_a_client_that_was_not_restarted_is_found(kits: Path) -> None:
    kit = kits / "msk"
    for path in (kit / "local").iterdir():
        os.utime(path, (time.time() - 100, time.time() - 100))
    with client(kit) as process:
        assert [found.pid for found in running_clients(kit)] == [process.pid]
        assert stale_client(kit) is None
        os.utime(kit / "local" / "privacy.json", (time.time() + 5, time.time() + 5))
        stale = stale_client(kit)
        assert stale is not None
        assert (stale.pid, stale.files) == (process.pid, ("privacy.json",))
        assert "restart it" in str(stale)
    assert running_clients(kit) == []


def test_a_policy_that_became_stricter_is_said_to_be_in_force(kits: Path) -> None:
    kit = kits / "msk"
    for path in (kit / "local").iterdir():
        os.utime(path, (time.time() - 100, time.time() - 100))
    with client(kit):
        for name, said in (("site.yaml", "is in force from the next reply on"), ("privacy.json", "NOT ACTIVE YET")):
            os.utime(kit / "local" / name, (time.time() + 5, time.time() + 5))
            shown = CliRunner().invoke(app, ["policy", "show", "--kit", str(kit)])
            assert said in shown.stderr
            assert ("NOT ACTIVE YET" in shown.stderr) == (name != "site.yaml")


def test_a_second_client_of_the_same_name_on_this_machine(kits: Path, tmp_path: Path) -> None:
    with client(kits / "msk"):
        assert rival(kits / "msk") is None
        with client(tmp_path / "copy") as other:
            assert f"process {other.pid}" in str(rival(kits / "msk"))
        copy = tmp_path / "same federation"
        shutil.copytree(kits / "msk", copy)
        with client(copy) as other:
            assert f"process {other.pid}" in str(rival(kits / "msk"))
        (copy / "startup" / "rootCA.pem").write_text("of another authority")
        with client(copy):
            assert rival(kits / "msk") is None, "a hospital may be in two federations"


def test_a_second_client_elsewhere_shows_by_lost_connections(kits: Path) -> None:
    log = kits / "msk" / "log.txt"
    with client(kits / "msk"):
        # A log has whole seconds only: start with the next one, after the client's own start.
        times = [time.localtime(time.time() + 1 + i) for i in range(4)]
        moments = [time.strftime("%Y-%m-%d %H:%M:%S", moment) for moment in times]
        log.write_text(CREATED.format(moments[0]) + "\n")
        assert rival(kits / "msk") is None
        log.write_text("\n".join(CREATED.format(moment) for moment in moments) + "\n")
        assert "another machine" in str(rival(kits / "msk"))
        log.write_text("\n".join(CREATED.format("2020-01-01 10:00:00") for _ in range(9)) + "\n")
        assert rival(kits / "msk") is None, "long ago"


def test_a_kit_at_work(kits: Path) -> None:
    journal.append(kits / "msk" / "released.jsonl", {"time": "2026-11-17T18:00:00Z"})
    with client(kits / "msk") as process:
        found = health(kits / "msk")
    assert (found.ok, found.process, found.last_reply) == (True, process.pid, "2026-11-17T18:00:00Z")
    assert found.warnings == ()


def test_a_kit_that_does_not_run_or_has_expired(kits: Path) -> None:
    expire(kits / "msk")
    found = health(kits / "msk")
    assert found.problems[0] == "it does not run"
    assert found.problems[1].startswith("its certificate expired on")


def test_two_processes_of_one_kit(kits: Path) -> None:
    with client(kits / "msk"), client(kits / "msk"):
        assert "2 processes run from this kit" in health(kits / "msk").problems


def test_the_status_file_and_the_exit_code(kits: Path, tmp_path: Path) -> None:
    out = tmp_path / "status.json"
    result = CliRunner().invoke(app, ["health", "--kit", str(kits / "server"), "--out", str(out)])
    assert result.exit_code == 1
    assert "NOT OK: not running; it does not run" in result.stdout
    content = json.loads(out.read_text())
    assert content["ok"] is False
    assert content["disk_free_gb"] > 0
