"""The check at the end of the suite: a process that outlives it is named, ended, and makes the suite fail."""

import os
import subprocess
import sys

import psutil
import pytest

from tests.helpers import REPOSITORY
from tests.helpers.leftovers import FAILED, VARIABLE, main, processes_of

STRAY = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep({})'], {})"
NEW_SESSION = "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"


def checked(program: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.helpers.leftovers", sys.executable, "-c", program]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not change how this process takes signals."""
    monkeypatch.setattr("tests.helpers.leftovers.signal.signal", lambda *_: None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("code", [0, 5])
def test_a_stray_process_is_named_and_ended(code: int, capfd: pytest.CaptureFixture[str]) -> None:
    stray = STRAY.format(98765, NEW_SESSION) + f"; sys.exit({code})"
    assert main([sys.executable, "-c", stray], patience=0.5) == (code or FAILED)
    said = capfd.readouterr().err
    assert "1 processes of the suite were alive after it" in said
    assert "time.sleep(98765)" in said
    pid = int(said.splitlines()[1].split(",")[0])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("code", [0, 7])
def test_without_one_the_code_is_that_of_the_command(code: int) -> None:
    done = checked(f"print('live', flush=True); raise SystemExit({code})")
    assert (done.returncode, done.stdout, done.stderr) == (code, "live\n", "")


def test_a_process_that_is_about_to_end_is_waited_for() -> None:
    assert checked(STRAY.format(1.5, NEW_SESSION)).returncode == 0


def test_another_suite_at_the_same_time_is_none_of_its_business() -> None:
    environment = os.environ | {VARIABLE: "other"}
    other = subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE)
    try:
        assert processes_of("other") == [psutil.Process(other.pid)]
        assert checked("").returncode == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert processes_of("other") == []
