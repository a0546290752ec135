"""A provisioned federation from submission to the downloaded model, with each hospital in control."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.config import JobConfig
from fedmr_med.flare.audit import AUDIT_FILE
from fedmr_med.models.model_file import as_arrays, load_model, read_tensors
from fedmr_med.runner import Federation as InProcess
from fedmr_med.sites import load_site
from tests.helpers import REPOSITORY
from tests.helpers.federation import LEAD, Federation, wait_for
from tests.helpers.small import small_job

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.timeout(1500)]

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
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)


def finish(watcher: subprocess.Popen[str]) -> dict[str, object]:
    """Wait for a watch command; return what it printed."""
    out, _ = watcher.communicate(timeout=1200)
    assert watcher.returncode == 0, "see the watch-*.log in the federation's folder"
    return dict(json.loads(out))


def test_from_submission_to_the_model(federation: Federation, tmp_path: Path) -> None:
    job = tiny_job(sites=3)
    federation.arm("msk", "train-2")
    chain = federation.submit(job)
    watcher = federation.watching(chain)
    line = "round 2/2 · in: rosendahl vienna-dias · waiting for: msk · balanced accuracy"
    wait_for(lambda: line in federation.watched(chain), "the watcher sees round 2")
    federation.release("msk", "train-2")
    assert finish(watcher) == {"chain": chain, "jobs": [chain], "status": "FINISHED:COMPLETED"}
    federation.cli("deploy", "download", chain, "--out", str(tmp_path / "out"))
    expected = in_process(federation, job, tmp_path / "in_process", tuple(federation.sites))
    assert_same_model(load_model(tmp_path / "out" / "checkpoint.pt").model, expected)
    results = json.loads((tmp_path / "out" / "results.json").read_text())["runs"][0]
    sites = results["history"]["rounds"][-1]["sites"]
    assert sites["msk"]["shared_classes"] == []
    assert sites["vienna-dias"]["shared_classes"]
    lines = [json.loads(line) for line in (federation.kit("msk") / AUDIT_FILE).read_text().splitlines()]
    trained = [line for line in lines if line["job"] == chain and line["task"] == "train"]
    assert [line["round"] for line in trained] == [1, 2]
    assert all("prototypes" not in line["parts"] and line["metrics"] == "none" for line in trained)


def test_one_exchange_over_features_that_stay_on_site(federation: Federation, tmp_path: Path) -> None:
    changes = {"model": {"freeze_backbone": True}, "head": {"exchange": "last"}, "federation": {"rounds": 0}}
    job = tiny_job("fedavg", sites=3).override(changes)
    chain = federation.submit(job)
    assert finish(federation.watching(chain))["status"] == "FINISHED:COMPLETED"
    federation.cli("deploy", "download", chain, "--out", str(tmp_path / "out"))
    configs = {name: load_site(federation.kit(name) / "local" / "site.yaml") for name in federation.sites}
    torch.set_num_threads(1)
    expected = InProcess(job, configs, tmp_path / "in_process").run()
    assert "msk" not in expected.history.head.sites, "it has opted out"
    head = as_arrays(read_tensors(tmp_path / "out" / "checkpoint.pt")["head"])
    assert_same_model(head, expected.head)
    best = load_model(tmp_path / "out" / "best_model.pt")
    assert expected.backbone.arrays.keys() < best.model.keys()
    best.network()


def test_a_recipe_runs_in_a_production_environment_under_the_hospitals_own_policies(
    federation: Federation, tmp_path: Path
) -> None:
    """By the script that tests/e2e/test_recipes.py simulates, in which msk would share all and vienna-dias nothing."""
    script = REPOSITORY / "docs" / "tutorials" / "from_simulation_to_federation.py"
    federation.wait_connected()
    command = [sys.executable, script, "prod", federation.kit(LEAD), LEAD]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "status: FINISHED:COMPLETED" in done.stdout
    results = next(line for line in done.stdout.splitlines() if line.startswith("results: ")).split(": ", 1)[1]
    (written,) = Path(results).rglob("results.json")
    (run,) = json.loads(written.read_text())["runs"]
    sites = run["history"]["rounds"][-1]["sites"]
    assert sites["msk"]["shared_classes"] == []
    assert sites["vienna-dias"]["shared_classes"]
    assert (written.parent / "metrics" / "metrics_summary.json").exists()


def test_site_check_of_a_running_hospital(federation: Federation, tmp_path: Path) -> None:
    federation.wait_connected()
    found = json.loads(federation.cli("site", "check", "--json", kit="rosendahl").stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert found["ok"], found
    assert "answers with the certificate of server" in checks["connection"]["message"]
    assert checks["client"]["message"].startswith("running")

    copy = federation.copy_kit("rosendahl", "rosendahl-copy")
    federation.start(copy)
    try:
        found = json.loads(federation.cli("site", "check", "--json", "--no-data", kit="rosendahl", code=1).stdout)
    finally:
        federation.kill(copy)
    checks = {check["name"]: check for check in found["checks"]}
    assert "a client of the same name" in checks["client"]["message"]
