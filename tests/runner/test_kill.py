"""A run that is killed with SIGKILL and started again ends with the model, prototypes and head of one that was not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.config import JobConfig
from fedmr_med.faults import FAULTS_VARIABLE
from fedmr_med.runner import Federation
from tests.helpers import REPOSITORY
from tests.helpers.benchmarks import equal_states
from tests.helpers.small import CLOSED, small_job
from tests.helpers.transports import demo_sites

pytestmark = pytest.mark.slow

SITES = ("bcn", "msk", "rosendahl", "vienna-dias")
JOBS = {
    "fedmr": small_job("fedmr", federation={"min_sites": 3}),
    "fedavg": small_job("fedavg", federation={"min_sites": 3}, head={"exchange": "last"}),
    "moon": small_job("fedavg", method={"name": "moon"}, federation={"min_sites": 3}),
    "feddyn": small_job("fedavg", method={"name": "feddyn"}, federation={"min_sites": 3}),
    "oneshot": small_job("fedmr", federation={"rounds": 0, "min_sites": 3}, head={"exchange": "last"}),
    "secure": small_job("fedmr", federation={"min_sites": 3, "secure": "all"}),
}

EVERY_TIME, NIGHTLY = ("fedmr", "secure"), pytest.mark.nightly
"""The others are stopped and resumed in this process, without a kill, every time."""


def federation(job: JobConfig, folder: Path) -> Federation:
    return Federation(job, demo_sites(*SITES, msk=CLOSED), folder)


SCRIPT = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from tests.runner.test_kill import JOBS, federation
federation(JOBS[sys.argv[1]], Path(sys.argv[2])).run()
"""


@pytest.mark.parametrize("name", [name if name in EVERY_TIME else pytest.param(name, marks=NIGHTLY) for name in JOBS])
def test_a_killed_run_resumes_to_the_same_result(name: str, tmp_path: Path) -> None:
    job = JOBS[name]
    expected = federation(job, tmp_path / "whole").run()
    point = f"aggregate-{job.federation.rounds}" if job.federation.rounds else "checkpoint-0"
    faults, folder = tmp_path / "faults", tmp_path / "killed"
    faults.mkdir()
    (faults / point).touch()
    environment = os.environ | {FAULTS_VARIABLE: str(faults), "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, name, str(folder)], env=environment, cwd=REPOSITORY)
    try:
        while not (faults / point).with_suffix(".reached").exists():
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    resumed = federation(job, folder).run()
    assert equal_states(resumed, expected)
    assert resumed.head.keys() == expected.head.keys()
    assert bool(expected.head) == (name not in ("moon", "feddyn"))
    for key, array in expected.head.items():
        assert np.array_equal(resumed.head[key], array), key
