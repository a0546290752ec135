"""One script that a user could have written, in FLARE's simulator and proof of concept; the federation runs it too."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmr_med.config import load_job
from fedmr_med.runner import Federation
from fedmr_med.sites import load_site
from tests.helpers import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = REPOSITORY / "docs" / "tutorials" / "from_simulation_to_federation.py"
POC_PORT = 8002


def run(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    """Run the script from another folder, as a user would; return what it prints."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("FEDMR_MED_")}
    variables |= {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"} | environment
    command = [sys.executable, SCRIPT, *arguments]
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's folder of a simulation."""
    folder = tmp_path_factory.mktemp("simulated")
    assert f"results: {folder / 'isic_recipe'}" in run("sim", folder, cwd=folder)
    return folder / "isic_recipe" / "server"


def model(path: Path) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in torch.load(path, weights_only=True)["model"].items()}


def test_the_exported_job_gives_the_same_model_in_the_runner_bit_for_bit(simulated: Path, tmp_path: Path) -> None:
    run("--export", "--export-dir", tmp_path / "jobs", "sim", tmp_path, cwd=tmp_path)
    config = tmp_path / "jobs" / "isic_recipe" / "app" / "config"
    sites = {path.parent.name: load_site(path) for path in config.glob("sites/*/site.yaml")}
    state = Federation(load_job(config / "fedmr.yaml"), sites, tmp_path / "runner").run()
    ours = model(simulated / "chains" / "simulate_job" / "checkpoint.pt")
    assert ours.keys() == state.model.keys()
    assert all(np.array_equal(array, state.model[name]) for name, array in ours.items())


def test_tensorboard_has_the_figures_of_those_who_share_them_and_of_nobody_else(simulated: Path) -> None:
    (result,) = json.loads((simulated / "chains" / "simulate_job" / "results.json").read_text())["runs"]
    folder = simulated / "simulate_job" / "tb_events"
    assert sorted(path.name for path in folder.iterdir()) == ["msk", "simulator_server"], (
        "vienna-dias shares no metrics"
    )
    tracked = {name: EventAccumulator(str(folder / name)).Reload() for name in ("msk", "simulator_server")}
    for evaluation in result["history"]["evaluations"]:
        sources = {"simulator_server": evaluation["pooled"], "msk": evaluation["sites"]["msk"]}
        for name, score in sources.items():
            values = {event.step: event.value for event in tracked[name].Scalars("mean_recall")}
            if evaluation["round"] in values:
                assert values[evaluation["round"]] == pytest.approx(score["mean_recall"])
    assert [event.step for event in tracked["simulator_server"].Scalars("mean_recall")] == [0, 1, 2]
    losses = {event.step: event.value for event in tracked["msk"].Scalars("loss/classification")}
    rounds = result["history"]["rounds"]
    told = {number: record["sites"]["msk"]["terms"]["classification"] for number, record in enumerate(rounds)}
    assert losses == pytest.approx(told)


def test_flares_own_files_say_the_same(simulated: Path) -> None:
    run_folder = simulated / "simulate_job"
    (result,) = json.loads((simulated / "chains" / "simulate_job" / "results.json").read_text())["runs"]
    summary = json.loads((run_folder / "metrics" / "metrics_summary.json").read_text())
    lines = [json.loads(line) for line in (run_folder / "metrics" / "round_metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2]
    assert {site["name"] for line in lines for site in line["sites"]} == {"msk"}
    final = {metric["name"]: metric["value"] for metric in summary["final_aggregated_metrics"]}
    assert final["mean_recall"] == result["history"]["evaluations"][-1]["pooled"]["mean_recall"]
    assert "balanced_accuracy" not in final, "msk, which alone shares its scores, has three of eight classes"
    evaluated = json.loads((run_folder / "cross_site_val" / "cross_val_results.json").read_text())
    assert evaluated["msk"]["SRV_final"]["scores"]["mean_recall"] == final["mean_recall"]
    assert evaluated["vienna-dias"]["SRV_final"] == {"scores": None}


def taken(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("localhost", port)) == 0


@pytest.mark.nightly
def test_flares_proof_of_concept_runs_the_same_script_to_the_same_model(simulated: Path, tmp_path: Path) -> None:
    if taken(POC_PORT):
        pytest.skip(f"port {POC_PORT}, which FLARE's proof of concept cannot change, is in use")
    printed = run("poc", cwd=tmp_path, NVFLARE_POC_WORKSPACE=str(tmp_path / "poc"))
    assert "status: FINISHED:COMPLETED" in printed
    results = Path(next(line for line in printed.splitlines() if line.startswith("results: "))[len("results: ") :])
    (checkpoint,) = results.rglob("checkpoint.pt")
    ours, theirs = model(simulated / "chains" / "simulate_job" / "checkpoint.pt"), model(checkpoint)
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
