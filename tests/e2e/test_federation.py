"""A provisioned federation from submission to the downloaded model, with each hospital in control."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedmr_med.flare.audit import AUDIT_FILE
from fedmr_med.models.model_file import as_arrays, load_model, read_tensors
from fedmr_med.runner import Federation as InProcess
from fedmr_med.sites import load_site
from tests.helpers import REPOSITORY
from tests.helpers.chains import assert_same_model, finish, in_process, tiny_job
from tests.helpers.federation import LEAD, Federation, wait_for

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_from_submission_to_the_model(federation: Federation, tmp_path: Path) -> None:
    job = tiny_job(sites=3)
    federation.arm("msk", "train-2")
    chain = federation.submit(job)
    watcher = federation.watching(chain)
    line = "round 2/2 · in: rosendahl vienna-dias · waiting for: msk · model after round 0: mean recall"
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


@pytest.mark.nightly
def test_an_opt_out_in_round_two_is_the_same_in_report_and_audit(federation: Federation, tmp_path: Path) -> None:
    name = "vienna-dias"
    federation.arm(name, "train-2")
    chain = federation.submit(tiny_job(rounds=3, sites=1), sites=(name,))
    watcher = federation.watching(chain)
    federation.wait_reached(name, "train-2")
    federation.cli("site", "policy", "set", "--share-prototypes", "off", "--share-metrics", "none", kit=name)
    try:
        assert "NOT ACTIVE YET" not in federation.cli("site", "policy", "show", kit=name).stderr
        federation.release(name, "train-2")
        assert finish(watcher)["status"] == "FINISHED:COMPLETED"
    finally:
        federation.cli("site", "policy", "set", "--share-prototypes", "on", "--share-metrics", "per_class", kit=name)
    federation.cli("deploy", "download", chain, "--out", str(tmp_path / "out"))
    federation.run("report", str(tmp_path / "out"), "-o", str(tmp_path / "report.html"))
    text = re.sub(r"<[^>]+>", " ", (tmp_path / "report.html").read_text())
    assert f"{name} sent class prototypes in round 1, and none in rounds 2 to 3." in text
    assert f"{name} changed what it shares: confusion matrix and score histograms of test images" in text
    replies = json.loads(federation.cli("site", "audit", "--json", kit=name).stdout)["replies"]
    mine = [line for line in replies if line["job"] == chain and line["code"] == "OK"]
    trained = {line["round"]: line for line in mine if line["task"] == "train"}
    assert {number for number, line in trained.items() if "prototypes" in line["parts"]} == {1}
    told = [line["metrics"] for line in mine if "metrics" in line]
    assert told[0] == "per_class" and set(told[1:]) == {"none"}


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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
