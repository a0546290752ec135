"""The benchmark jobs in FLARE's real simulator, on small files in the official formats, and against the runner."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmr_med.jobs.benchmark import benchmark_sites
from fedmr_med.jobs.catalog import any_job, paper_jobs
from fedmr_med.jobs.folder import write_job
from fedmr_med.runner import Federation
from tests.helpers import REPOSITORY
from tests.helpers.archives import write_manifest, write_mini, write_mini_shakespeare
from tests.helpers.benchmarks import TINY, tiny_job
from tests.helpers.simulator import Simulation, change_job, simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

JOBS = {job.name: (job, sites) for job, sites in paper_jobs(REPOSITORY / "sites") if not job.name.startswith("isic")}
EVERY_TIME = ("feddc",)
"""The others run every night: they differ in their data and in no code of a job, or keep less from round to round."""

COMPARED = ("fedavg", "fedmr", "feddc")
SPLIT, CLIENTS = "P3C4", 3
NO_DATA = "no data"


def write_archives(folder: Path) -> None:
    for name in ("cifar10", "cifar100", "svhn", "fmnist"):
        write_mini(name, folder / name, per_class=2 if name == "cifar100" else 6, test_per_class=1)
    for name in ("hyperkvasir", "odir"):
        write_manifest(folder / name, name, per_class=2)
    write_mini_shakespeare(folder / "shakespeare", speakers=50, samples=3)


def small(folder: Path) -> None:
    """Cut a job down to one round of one step with one client; the rest of its settings stay."""
    dataset = folder.name.split("_")[0]
    changes: dict[str, Any] = {
        "train": {"epochs": None, "updates": 1, "batch_size": 8},
        "federation": {"rounds": 1, "min_sites": 1, "sites_per_round": None},
    }
    if dataset == "cifar100":
        changes["model"] = {"name": "small_cnn"}  # the paper's network has 146 MB on the wire
    if dataset in ("hyperkvasir", "odir"):
        changes["task"] = {"image_size": 32}
    change_job(folder, **changes)
    # With fewer clients than the job names, FLARE asks for a job that needs no more.
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"min_clients": 1}))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_archives(folder)
    return folder


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Simulation]:
    """The simulator runs of all tests of this file that were selected, two at a time."""
    here = [item for item in request.session.items if item.path == Path(__file__)]
    parameters = [getattr(item, "callspec", None) for item in here]
    names = [next(iter(found.params.values())) if found else NO_DATA for found in parameters]
    folder = tmp_path_factory.mktemp("simulator")
    environment = {"FEDMR_MED_DATA": str(data), "FEDMR_MED_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}

    def run(name: str) -> Simulation:
        place = folder / name.replace(" ", "_")
        job = place / (name if name in JOBS else "fmnist_fedavg")
        if name in COMPARED:
            settings, sites = any_job("fmnist", name, split=SPLIT, model="small_cnn", changes=TINY)
            write_job(settings, job, sites)
            return simulate(job, place / "workspace", "-t", str(CLIENTS), environment=environment)
        settings, sites = JOBS[job.name]
        write_job(settings, job, sites)
        small(job)
        variables = environment if name != NO_DATA else {"OMP_NUM_THREADS": "1"}
        return simulate(job, place / "workspace", "-c", "client-1", "-t", "1", environment=variables)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(run, names), strict=True))


def by_night(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in EVERY_TIME else pytest.mark.nightly) for name in names]


@pytest.mark.parametrize("name", by_night(JOBS))
def test_every_job_runs_one_round_in_the_simulator(name: str, runs: dict[str, Simulation]) -> None:
    done = runs[name]
    assert done.exit_code == 0, done.output[-3000:]
    (result,) = json.loads((done.chain / "results.json").read_text())["runs"]
    (record,) = result["rounds"]
    assert f"{result['dataset']}_{result['method']}" == name
    assert record["accuracy"] is not None
    assert list(result["history"]["rounds"][0]["sites"]) == ["client-1"]


@pytest.mark.parametrize("method", by_night(COMPARED))
def test_runner_and_simulator_give_the_same_model_bit_for_bit(
    method: str, runs: dict[str, Simulation], data: Path, tmp_path: Path
) -> None:
    done = runs[method]
    assert done.exit_code == 0, done.output[-3000:]
    job = tiny_job(method, split=SPLIT)
    simulated = done.state(job)
    sites = benchmark_sites(CLIENTS, root=data / "fmnist", seed=job.seed)
    ran = Federation(job, sites, tmp_path).run()
    assert simulated.round == ran.round == job.federation.rounds
    for name, array in ran.model.items():
        assert np.array_equal(simulated.model[name], array), name
    for name, array in ran.method.items():
        assert np.array_equal(simulated.method[name], array), name
    assert np.array_equal(simulated.prototypes.means, ran.prototypes.means)
    assert simulated.history.evaluations == ran.history.evaluations


@pytest.mark.nightly
def test_without_data_a_job_stops_and_names_the_command(runs: dict[str, Simulation]) -> None:
    done = runs[NO_DATA]
    assert done.exit_code != 0
    assert "fedmr-med data download fmnist" in done.output
