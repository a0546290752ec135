"""Writing job folders: those that are checked in, and those that `make jobs` writes."""

import filecmp
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fedmr_med import methods, models
from fedmr_med.config import JOB_FILE, load_job
from fedmr_med.data.datasets import DATASETS
from fedmr_med.jobs.catalog import any_job, isic_job, paper_jobs
from fedmr_med.jobs.folder import write_job
from fedmr_med.sites import load_site
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises

SITES = REPOSITORY / "sites"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


CHECKED_IN = (
    *("isic_fedmr", "isic_fedavg", "isic_oneshot"),
    *("fmnist_fedmr", "cifar10_fedmr", "cifar100_fedmr", "svhn_fedmr"),
)
JOBS = {job.name: (job, sites) for job, sites in paper_jobs(SITES)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all jobs of the paper."""
    folder = tmp_path_factory.mktemp("jobs")
    for name, (job, sites) in JOBS.items():
        write_job(job, folder / name, sites)
    return folder


@pytest.mark.parametrize("name", CHECKED_IN)
def test_a_checked_in_job_is_what_the_writer_writes(name: str, written: Path) -> None:
    folder = REPOSITORY / "jobs" / name
    advice = f"{name}: run `make jobs` and check in what it writes"
    assert files(folder) == files(written / name), advice
    _, different, errors = filecmp.cmpfiles(folder, written / name, files(folder), shallow=False)
    assert not different + errors, advice


@pytest.mark.parametrize("name", CHECKED_IN)
def test_a_job_file_begins_with_what_it_decides(name: str) -> None:
    lines = (REPOSITORY / "jobs" / name / "app" / "config" / JOB_FILE).read_text().splitlines()
    job = JOBS[name][0]
    assert lines[0].startswith(f"# {job.method.name} on {job.task.dataset}")
    assert all(not line.startswith("#") for line in lines[2:])


def test_no_other_job_is_checked_in() -> None:
    listed = subprocess.run(["git", "ls-files", "jobs"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    assert {line.split("/")[1] for line in listed.stdout.splitlines()} == set(CHECKED_IN)


def test_every_dataset_of_the_paper_has_its_jobs() -> None:
    two = {f"{d}_{m}" for d in ("isic", "cifar10", "cifar100", "svhn", "fmnist") for m in ("fedmr", "fedavg")}
    assert set(JOBS) == two | {"hyperkvasir_fedmr", "odir_fedmr", "shakespeare_fedmr", "isic_oneshot"}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_complete(name: str, written: Path) -> None:
    folder = written / name
    job = load_job(folder / "app" / "config" / JOB_FILE)
    assert job.name == name
    assert job.model.name in models.available()
    methods.build(job.method)
    _, *names = json.loads((folder / "meta.json").read_text())["deploy_map"]["app"]
    sites = {site: load_site(folder / "app" / "config" / "sites" / site / "site.yaml") for site in names}
    assert len(sites) >= job.federation.min_sites
    if not DATASETS.get(job.task.dataset).sites:
        assert names == [f"client-{k}" for k in range(1, len(sites) + 1)]
        numbers = [(site.data.client, site.data.clients) for site in sites.values() if site.data.source == "benchmark"]
        assert numbers == [(client, len(sites)) for client in range(len(sites))]


def test_the_papers_settings() -> None:
    job, sites = any_job("cifar100", "fedmr")
    assert (job.task.split, job.model.name, job.federation.rounds, len(sites)) == (
        "P10C10",
        "wide_resnet28_10",
        200,
        10,
    )
    assert job.method.options == {"variant": "replayed"}
    printed, _ = any_job("cifar100", "fedmr", changes={"fedmr.variant": "paper"})
    assert printed.method.options == {"variant": "paper", "mu1": 0.1, "mu2": 0.0001}
    train = job.train
    assert (train.lr, train.momentum, train.weight_decay, train.batch_size, train.epochs) == (0.01, 0.9, 1e-5, 128, 10)
    assert any_job("fmnist", "fedprox")[0].method.options == {"mu": 0.01}


@pytest.mark.parametrize(
    ("dataset", "split", "clients", "rounds"),
    [("cifar10", "P50C3", 50, 200), ("cifar10", "P100C3", 100, 400), ("cifar100", "P50C10", 50, 400)],
)
def test_with_many_clients_ten_are_drawn(dataset: str, split: str, clients: int, rounds: int) -> None:
    job, sites = any_job(dataset, "fedavg", split=split)
    assert len(sites) == clients
    assert (job.federation.sites_per_round, job.federation.min_sites, job.federation.rounds) == (10, 10, rounds)


def test_any_combination_can_be_written() -> None:
    changes = {"train.updates": 3, "mu1": 0.5, "fedprox.mu": 7, "federation.rounds": 4}
    job, sites = any_job("svhn", "fedmr", split="dir0.5", clients=4, model="small_cnn", share=0.5, changes=changes)
    assert job.name == "svhn_fedmr_dir0.5"
    assert (job.model.name, job.train.updates, job.train.epochs, job.federation.rounds) == ("small_cnn", 3, None, 4)
    assert job.method.options["mu1"] == 0.5
    assert "mu" not in job.method.options
    assert sum("share_prototypes: true" in text for text in sites.values()) == 2


def test_a_job_carries_the_paths_of_its_hospitals_in_full(tmp_path: Path) -> None:
    shutil.copytree(SITES, tmp_path / "sites")
    path = tmp_path / "sites" / "bcn" / "site.yaml"
    path.write_text(path.read_text().replace("root: null", "root: ../images"))
    _, sites = any_job("isic2019", "fedmr", sites=tmp_path / "sites")
    assert f"root: {path.parent.resolve() / '../images'}\n" in sites["bcn"]
    assert sites["msk"] == (SITES / "msk" / "site.yaml").read_text(), "comments stay where they can"


def test_isic_jobs_can_be_changed_too() -> None:
    job, sites = any_job("isic2019", "fedprox", changes={"train.lr": 0.5}, sites=SITES, name="mine")
    assert (job.name, job.method.options, job.train.lr, len(sites)) == ("mine", {"mu": 0.001}, 0.5, 6)
    assert job.demo == isic_job("fedprox").demo
    other, _ = any_job("isic2019", "fedprox", model="small_cnn", sites=SITES)
    for effective in (other, other.for_demo()):
        assert (effective.model.name, effective.model.options) == ("small_cnn", {})
    with raises("config.conflict", "--split"):
        any_job("isic2019", "fedavg", split="P5C2", sites=SITES)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"dataset": "mnist"}, ("config.unknown-name", "dataset")),
        ({"method": "fedsgd"}, ("config.unknown-name", "method.name")),
        ({"split": "P5"}, ("split.form",)),
        ({"split": "P5C2", "clients": 7}, ("split.clients",)),
        ({"split": "dir0"}, ("split.beta",)),
        ({"share": 1.5}, ("config.value", "share")),
        ({"changes": {"train.speed": 1}}, ("config.unknown-key", "train.speed")),
        ({"changes": {"fedprox.mu1": 1}}, ("config.unknown-key", "fedprox.mu1")),
        ({"changes": {"mu1": -1}}, ("config.greater-than-equal", "method.options.mu1")),
        (
            {"changes": {"train.optimizer": "sdg"}},
            ("config.unknown-name", "train.optimizer"),
        ),
        ({"changes": {"loss.name": "entropy"}}, ("config.unknown-name", "loss.name")),
        ({"changes": {"task.transform": "crop"}}, ("config.unknown-name", "task.transform")),
        ({"model": "resnet81"}, ("config.unknown-name", "model.name")),
        ({"changes": {"train.epochs": 1, "train.updates": 1}}, ("config.conflict", "train.epochs")),
    ],
)
def test_requests_that_make_no_sense_are_refused(arguments: dict, fault: tuple[str, ...]) -> None:
    with raises(*fault):
        any_job(**({"dataset": "fmnist", "method": "fedmr"} | arguments))


def test_a_folder_that_is_no_job_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    job, sites = any_job("fmnist", "fedavg")
    with raises("file.foreign"):
        write_job(job, tmp_path, sites)
    assert files(tmp_path) == ["notes.txt"]


def test_the_isic_job_goes_on_without_two_of_its_six_hospitals_and_not_for_ever(tmp_path: Path) -> None:
    for name in ("isic_fedavg", "isic_fedmr", "isic_oneshot"):
        job = load_job(REPOSITORY / "jobs" / name / "app" / "config" / "fedmr.yaml")
        for effective in (job, job.for_demo()):
            federation = effective.federation
            assert federation.min_sites == 4
            assert 0 < federation.grace_seconds < federation.timeout_seconds
        assert json.loads((REPOSITORY / "jobs" / name / "meta.json").read_text())["min_clients"] == 4
