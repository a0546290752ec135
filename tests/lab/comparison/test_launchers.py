"""One sweep under every launcher: the same results, and what becomes of it when a process is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmr_med.evaluation.results import RunResult, RunResults, read_result
from fedmr_med.lab.comparison import launchers
from fedmr_med.lab.comparison.clusters import OnRay, Slurm
from fedmr_med.lab.comparison.launchers import Local, Resources, processes
from tests.helpers import REPOSITORY
from tests.helpers.benchmarks import TINY, without_times
from tests.helpers.errors import raises

OPTIONS = {
    "here": ["--workers", "0"],
    "local": ["--workers", "2"],
    "slurm": ["--launcher", "slurm", "--launcher-option", "cluster=local"],
    "debug": ["--launcher", "slurm", "--launcher-option", "cluster=debug"],
    "ray": ["--launcher", "ray"],
}


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    # The path of Ray's sockets must be short.
    folder = tempfile.mkdtemp(dir="/tmp", prefix="ray")
    yield os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY), "RAY_TMPDIR": folder}
    shutil.rmtree(folder, ignore_errors=True)


def sweep(launcher: str, data: Path, out: Path, rounds: int = 3) -> list[str]:
    settings = [f"--set={key}={json.dumps(value)}" for key, value in (TINY | {"federation.rounds": rounds}).items()]
    what = ["--dataset", "fmnist", "--data", str(data), "--methods", "fedavg,feddc", "--seeds", "0,1"]
    command = [sys.executable, "-c", "from fedmr_med.cli import main; main()", "bench", "--out", str(out)]
    return [*command, *what, "--model", "small_cnn", *settings, *OPTIONS[launcher]]


@pytest.fixture(scope="module")
def expected(fmnist: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    out = tmp_path_factory.mktemp("here")
    subprocess.run(sweep("here", fmnist, out), check=True, env=environment, capture_output=True)
    return without_times(results(out))


def results(out: Path) -> tuple[RunResult, ...]:
    return read_result(out / "results.json", RunResults).runs


@pytest.mark.nightly
@pytest.mark.slow
def test_submitit_in_this_process_gives_the_same_results(
    fmnist: Path, environment: dict[str, str], expected: list[Any], tmp_path: Path
) -> None:
    subprocess.run(sweep("debug", fmnist, tmp_path), check=True, env=environment, capture_output=True)
    assert without_times(results(tmp_path)) == expected


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "slurm", "ray"])
def test_a_killed_process_costs_nothing_but_time(
    launcher: str, fmnist: Path, environment: dict[str, str], expected: list[Any], tmp_path: Path
) -> None:
    """The process that does the first run is killed with -9 in the middle; the command finishes by itself."""
    process = subprocess.Popen(
        sweep(launcher, fmnist, tmp_path), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        victim = owner_of_a_run(tmp_path, process)
        os.kill(victim, signal.SIGKILL)
        _, errors = process.communicate(timeout=400)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert without_times(results(tmp_path)) == expected


def owner_of_a_run(out: Path, command: "subprocess.Popen[str]") -> int:
    """Wait for a run's first checkpoint, and return the process that holds the lock of the run."""
    while True:
        assert command.poll() is None, "it ended before anything could be killed"
        for checkpoint in out.glob("runs/*/checkpoint.pt"):
            lock = checkpoint.parent / ".lock"
            inode = lock.stat().st_ino
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()
                if "FLOCK" in fields and fields[-3].endswith(f":{inode}") and not fields[-4].startswith("-"):
                    return int(fields[-4])
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("threads", "asked", "given"),
    [
        ("", (5, None, None), (4, 1)),
        ("", (1, None, None), (1, 4)),
        ("", (2, None, None), (2, 2)),
        ("", (3, None, None), (3, 1)),
        ("2", (5, None, None), (2, 1)),
        ("8", (5, None, None), (1, 1)),
        ("", (5, None, 2), (2, 2)),
        ("", (5, None, 8), (1, 8)),
        ("", (5, 1, None), (1, 4)),
        ("", (5, 0, None), (0, 1)),
        ("", (0, None, None), (1, 4)),
    ],
)
def test_runs_and_clients_share_the_cores(
    threads: str, asked: tuple[int, int | None, int | None], given: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "available_cores", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert processes(*asked) == given


def test_a_launcher_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    launch, clients = Resources("slurm", options={"cpus": 8, "partition": "gpu", "gpus": 1, "hours": 0.5}).launch(3)
    assert isinstance(launch, Slurm)
    assert (launch.options.partition, launch.options.gpus, launch.threads, clients) == ("gpu", 1, 2, 4)
    launch, clients = Resources("ray", parallel_clients=3, options={"address": "auto"}).launch(3)
    assert isinstance(launch, OnRay)
    assert (launch.options.address, clients) == ("auto", 3)
    assert isinstance(Resources(workers=0).launch(1)[0], Local)


@pytest.mark.parametrize(
    ("resources", "fault"),
    [
        (Resources("pbs"), ("config.unknown-name", "--launcher")),
        (Resources("slurm", workers=2), ("config.conflict", "--workers")),
        (Resources("slurm", options={"queue": "x"}), ("config.unknown-key", "--launcher-option.queue")),
        (Resources("local", options={"partition": "x"}), ("config.conflict", "--launcher-option")),
    ],
)
def test_what_a_launcher_does_not_have_is_refused(resources: Resources, fault: tuple[str, ...]) -> None:
    with raises(*fault):
        resources.launch(1)


@pytest.mark.nightly
def test_without_a_cluster_the_message_says_so(tmp_path: Path) -> None:
    launch, _ = Resources("slurm").launch(1)
    with raises("run.no-cluster", "--launcher"):
        launch([], tmp_path / "runs", lambda number, progress: None)


def test_without_submitit_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    launch, _ = Resources("slurm").launch(1)
    with raises("package.missing", "--launcher"):
        launch([], tmp_path / "runs", lambda number, progress: None)
