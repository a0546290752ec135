"""``fedmr-med jobs write`` and ``show``."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmr_med.config import load_job
from fedmr_med.jobs.catalog import isic_job, paper_jobs
from fedmr_med.jobs.folder import write_job
from tests.helpers import REPOSITORY
from tests.helpers.command_line import run
from tests.helpers.errors import printed_fault


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
    assert run(monkeypatch, "jobs", "write", "--dataset", "mnist", "--out", str(tmp_path), "--json") == 2
    assert printed_fault(capsys) == ("config.unknown-name", "dataset")


def test_show_prints_every_setting_and_tells_what_the_job_decides(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    folder = REPOSITORY / "jobs" / "isic_fedmr"
    path = folder / "app" / "config" / "fedmr.yaml"
    assert run(monkeypatch, "jobs", "show", str(folder)) == 0
    chosen, defaults = yaml.safe_load_all(capsys.readouterr().out)
    assert chosen == yaml.safe_load(path.read_text()), "the file says what the job decides"
    assert (defaults["train"]["lr"], defaults["policy"]["min_class_count"]) == (0.01, 1)
    assert defaults["method"]["options"]["mu2"] == 0.5
    assert defaults["model"]["options"]["norm"] == "batch"
    assert "batch_size" not in defaults["train"], "it is among what the job decides"

    monkeypatch.chdir(REPOSITORY)
    assert run(monkeypatch, "jobs", "show", "isic_fedmr", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert content.keys() == {"digest", "settings", "set"}
    assert (content["set"], content["digest"]) == (chosen, load_job(path).digest())
    whole = load_job(path).model_dump(mode="json")
    assert content["settings"] == whole | {
        section: whole[section] | {"options": defaults[section]["options"] | chosen[section]["options"]}
        for section in ("method", "model")
    }
    assert run(monkeypatch, "jobs", "show", "nowhere") == 2
    assert "nowhere is neither a job folder" in capsys.readouterr().err


def test_extend_writes_a_job_from_what_the_leads_kit_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    job = isic_job("oneshot").override({"head": {"keep": True}})
    write_job(job, tmp_path / "kit" / "chains" / "ab-12" / "job" / job.name, dict.fromkeys(("msk", "bcn")))
    about = ("jobs", "extend", "ab-12", "--class", "Ninth", "--site", "rosendahl", "--out", str(tmp_path / "jobs"))
    assert run(monkeypatch, *about, "--kit", str(tmp_path / "kit"), "--json") == 0
    folder = Path(json.loads(capsys.readouterr().out)["folder"])
    made = load_job(folder / "app" / "config" / "fedmr.yaml")
    assert made.task.class_names == (*job.task.class_names, "Ninth")
    assert made.head.extends.chain == "ab-12"
    assert run(monkeypatch, *about, "--json") == 2
    assert printed_fault(capsys) == ("config.missing", "--kit")
