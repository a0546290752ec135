"""Jobs of a provisioned federation: small ones, their end, their rounds, and the model they must come to."""

import json
import subprocess
from pathlib import Path

import numpy as np
import torch

from fedmr_med.config import JobConfig
from fedmr_med.runner import Federation as InProcess
from fedmr_med.sites import load_site
from tests.helpers.federation import Federation
from tests.helpers.small import small_job

TWO = ("msk", "vienna-dias")


def tiny_job(method: str = "fedmr", *, rounds: int = 2, sites: int = 2) -> JobConfig:
    """Return a job whose rounds take a moment."""
    return small_job(
        method,
        name=f"tiny_{method}",
        task={"transform": "plain", "image_size": 24},
        federation={"rounds": rounds, "min_sites": sites, "grace_seconds": 3, "timeout_seconds": 600},
    )


def in_process(federation: Federation, job: JobConfig, folder: Path, sites: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the model that leaves the same job, run without a break in this process."""
    configs = {name: load_site(federation.kit(name) / "local" / "site.yaml") for name in sites}
    torch.set_num_threads(1)
    return InProcess(job, configs, folder).run().leaving().model


def assert_same_model(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    """Compare two models bit for bit."""
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)


def finish(watcher: subprocess.Popen[str]) -> dict[str, object]:
    """Wait for a watch command; return what it printed."""
    out, _ = watcher.communicate(timeout=1200)
    assert watcher.returncode == 0, "see the watch-*.log in the federation's folder"
    return dict(json.loads(out))


def history(federation: Federation, chain: str) -> list[dict[str, object]]:
    """Return the rounds of a chain as the server wrote them down."""
    results = federation.checkpoint(chain).with_name("results.json")
    return list(json.loads(results.read_text())["runs"][0]["history"]["rounds"])
