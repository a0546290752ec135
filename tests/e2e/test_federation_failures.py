"""Kill -9 of server, client and job process: the chain still ends with a complete model."""

import json
import subprocess
from pathlib import Path

import psutil
import pytest

from fedmr_med.checkpoint import load_model
from tests.e2e.federation import SERVER, Federation, kill_process, wait_for
from tests.e2e.test_federation import TWO, assert_same_model, in_process, tiny_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def finish(watcher: subprocess.Popen[str]) -> dict[str, object]:
    """Wait for a watch command; return what it printed."""
    out, _ = watcher.communicate(timeout=1200)
    assert watcher.returncode == 0, "see the watch-*.log in the federation's folder"
    return dict(json.loads(out))


def history(federation: Federation, chain: str) -> list[dict[str, object]]:
    results = federation.checkpoint(chain).with_name("results.json")
    return list(json.loads(results.read_text())["runs"][0]["history"]["rounds"])


def test_the_server_killed_in_every_phase_loses_nothing(federation: Federation, tmp_path: Path) -> None:
    """FedDyn keeps state at the hospitals too, so a round that counts twice or not at all would show."""
    job = tiny_job("feddyn", rounds=3)
    phases = [(SERVER, "start"), ("vienna-dias", "train-1"), (SERVER, "aggregate-2"), (SERVER, "checkpoint-2")]
    federation.arm(*phases[0])
    chain = federation.submit(job, sites=TWO)
    watcher = federation.watching(chain, "--resume")
    for number, (where, point) in enumerate(phases):
        federation.wait_reached(where, point)
        complete = load_round(federation, chain)
        federation.kill(SERVER)
        federation.release(where, point)
        assert load_round(federation, chain) == complete, "a kill leaves the checkpoint as it was"
        assert complete == (0 if number < 2 else 1)
        if number + 1 < len(phases):
            federation.arm(*phases[number + 1])
        federation.start(SERVER)
    watched = finish(watcher)
    assert len(watched["jobs"]) == len(phases) + 1
    assert [record["round"] for record in history(federation, chain)] == [1, 2, 3]
    expected = in_process(federation, job, tmp_path, TWO)
    assert_same_model(load_model(federation.checkpoint(chain)), expected)


def load_round(federation: Federation, chain: str) -> int:
    """Return how many rounds are safe on the server's disk."""
    path = federation.checkpoint(chain)
    return len(history(federation, chain)) if path.exists() else 0


def test_a_job_process_and_the_server_killed_give_the_model_of_an_uninterrupted_run(
    federation: Federation, tmp_path: Path
) -> None:
    job = tiny_job("fedmr")
    federation.arm("vienna-dias", "train-1")
    federation.arm(SERVER, "aggregate-2")
    chain = federation.submit(job, sites=TWO)
    watcher = federation.watching(chain, "--resume")
    federation.wait_reached("vienna-dias", "train-1")
    (process,) = federation.job_processes("vienna-dias")
    kill_process(process)
    federation.release("vienna-dias", "train-1")
    federation.wait_reached(SERVER, "aggregate-2")
    federation.kill(SERVER)
    federation.release(SERVER, "aggregate-2")
    federation.start(SERVER)
    watched = finish(watcher)
    assert len(watched["jobs"]) == 3
    expected = in_process(federation, job, tmp_path, TWO)
    assert_same_model(load_model(federation.checkpoint(chain)), expected)


def test_a_hospital_that_dies_or_hangs_is_left_out_and_comes_back(federation: Federation) -> None:
    job = tiny_job("fedmr", rounds=2, sites=2)
    federation.arm("rosendahl", "train-1")
    chain = federation.submit(job)
    federation.wait_reached("rosendahl", "train-1")
    federation.kill("rosendahl")
    federation.release("rosendahl", "train-1")
    wait_for(lambda: load_round(federation, chain) == 2, "two rounds without the dead hospital")
    assert all(set(record["sites"]) == set(TWO) for record in history(federation, chain))
    federation.start("rosendahl")
    finish(federation.watching(chain, "--resume"))

    chain = federation.submit(tiny_job("fedmr", rounds=1, sites=3))
    finish(federation.watching(chain, "--resume"))
    assert set(history(federation, chain)[0]["sites"]) == set(federation.sites), "it takes part again"


def test_no_process_is_left_of_jobs_that_have_ended(federation: Federation) -> None:
    def left() -> list[int]:
        return [
            pid
            for name in (SERVER, *federation.sites)
            for pid in federation.job_processes(name)
            if psutil.pid_exists(pid)
        ]

    wait_for(lambda: not left(), "all job processes have ended")
