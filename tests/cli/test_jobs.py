"""``fedmr-med jobs write``."""

from pathlib import Path
from typing import Any

import pytest

from fedmr_med.config import load_job
from fedmr_med.jobs.catalog import paper_jobs
from tests.helpers import REPOSITORY
from tests.helpers.command_line import run


def test_without_a_dataset_all_jobs_of_the_paper_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    sites = REPOSITORY / "sites"
    assert run(monkeypatch, "jobs", "write", "--out", str(tmp_path), "--sites", str(sites)) == 0
    names = {job.name for job, _ in paper_jobs(sites)}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert {Path(line).name for line in capsys.readouterr().out.splitlines()} == names


def test_any_other_combination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    arguments = ["--dataset", "cifar10", "--method", "moon", "--split", "dir0.5", "--clients", "3", "--rounds", "7"]
    settings = ["--set", "mu=0.25", "--set", "train.lr=0.5", "--model", "small_cnn", "--name", "mine"]
    assert run(monkeypatch, "jobs", "write", *arguments, *settings, "--out", str(tmp_path)) == 0
    assert Path(capsys.readouterr().out.strip()) == tmp_path / "mine"
    job = load_job(tmp_path / "mine" / "app" / "config" / "fedmr.yaml")
    assert (job.name, job.method.name, job.method.options["mu"]) == ("mine", "moon", 0.25)
    assert (job.federation.rounds, job.train.lr, job.task.split) == (7, 0.5, "dir0.5")
    assert len(list((tmp_path / "mine" / "app" / "config" / "sites").iterdir())) == 3
    assert run(monkeypatch, "jobs", "write", "--dataset", "mnist", "--out", str(tmp_path)) == 2
    assert "'mnist' is not one of" in capsys.readouterr().err
