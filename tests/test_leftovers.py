"""The check at the end of the suite: a process that outlives it is named, ended, and makes the suite fail."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "workers"), [(signal.SIGINT, 2), (signal.SIGTERM, 2), (signal.SIGHUP, 0)])
def test_an_interrupted_suite_leaves_nothing(sent: signal.Signals, workers: int, tmp_path: Path) -> None:
    """Ctrl-C and a closed terminal reach the check, pytest and its workers alike; a service's stop the check alone."""
    noted = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(process.pid))"
    stray = STRAY.format(98765, NEW_SESSION).replace("; ", "; process = ") + f"; {noted}"
    (tmp_path / "test_long.py").write_text(f"def test_long():\n    {stray}; import time; time.sleep(98765)\n")
    check = "import sys; from tests.helpers.leftovers import main; sys.exit(main(sys.argv[1:], patience=1))"
    pytest_command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(workers), "--rootdir"]
    command = [sys.executable, "-c", check, *pytest_command, str(tmp_path), str(tmp_path)]
    # A suite in the background ignores Ctrl-C, and so would all that it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    suite = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, start_new_session=True)
    signal.signal(signal.SIGINT, before)
    while not ((tmp_path / "pid").exists() and (pid := (tmp_path / "pid").read_text())):
        assert suite.poll() is None
        time.sleep(0.05)
    if sent == signal.SIGTERM:
        suite.terminate()
    else:
        os.killpg(suite.pid, sent)
    _, said = suite.communicate(timeout=120)
    assert suite.returncode > 0
    assert f"{pid}, " in said and "time.sleep(98765)" in said
    assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    with pytest.raises(ProcessLookupError):
        os.killpg(suite.pid, 0)
