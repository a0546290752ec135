"""What is sent to the server: the job folder as it is but for ``custom/``, or with the changes asked for."""

import json
from pathlib import Path

import pytest
import torch

from fedmr_med.config import load_job
from fedmr_med.deploy import chain as chains
from fedmr_med.deploy.session import JobInfo, Session
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.jobs.folder import INITIAL_MODEL, SERVER_APP, write_job
from fedmr_med.models.job_network import build_network
from fedmr_med.site.approval import settings_id
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises
from tests.helpers.small import small_job


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("meta", sorted((REPOSITORY / "jobs").glob("*/meta.json")), ids=lambda path: path.parent.name)
def test_a_checked_in_job_is_sent_without_custom_and_otherwise_unchanged(meta: Path, tmp_path: Path) -> None:
    source = meta.parent
    staged = chains.stage(source, tmp_path / "staged")
    sent, here = files(staged), files(source)
    assert {name for name in here if "/custom/" in name} == here.keys() - sent.keys()
    assert here.keys() - sent.keys(), "the checked-in job must carry custom/ for the simulator"
    assert all(here[name] == content for name, content in sent.items())


def test_hospitals_and_settings_can_be_changed(tmp_path: Path) -> None:
    source = REPOSITORY / "jobs" / "isic_fedmr"

    def smaller(job):
        return job.override({"federation": {"rounds": 2, "min_sites": 2}})

    staged = chains.stage(source, tmp_path / "staged", sites=("bcn", "msk"), adapt=smaller)
    meta = json.loads((staged / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", "bcn", "msk"]}
    assert meta["min_clients"] == 2
    assert load_job(staged / "app" / "config" / "fedmr.yaml").federation.rounds == 2


def test_weights_are_staged_for_the_server_alone(tmp_path: Path) -> None:
    job = small_job()
    torch.save(build_network(job.override({"seed": 7})).state_dict(), tmp_path / "weights.pt")
    write_job(job, tmp_path / "job", dict.fromkeys(("bcn", "msk")), initial_model=tmp_path / "weights.pt")
    staged = chains.stage(tmp_path / "job", tmp_path / "staged", sites=("msk",), adapt=lambda job: job)
    meta = json.loads((staged / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["msk"], SERVER_APP: ["server"]}
    assert [path.parts[-3] for path in staged.rglob(INITIAL_MODEL)] == [SERVER_APP]
    at_site, at_server = (load_job(staged / app / "config" / "fedmr.yaml") for app in ("app", SERVER_APP))
    assert at_site == at_server
    assert at_site.model.weights is not None


def test_a_follow_up_differs_in_the_chain_alone_and_fits_the_checkpoint(tmp_path: Path) -> None:
    source = REPOSITORY / "jobs" / "isic_fedmr"
    staged = chains.stage(source, tmp_path / "staged", adapt=lambda job: job.model_copy(update={"chain": "abc"}))
    first = load_job(source / "app" / "config" / "fedmr.yaml")
    follow_up = load_job(staged / "app" / "config" / "fedmr.yaml")
    assert follow_up == first.model_copy(update={"chain": "abc"})
    assert follow_up.digest() == first.digest() == isic_job("fedmr").digest()


def test_an_unknown_hospital_or_folder_is_refused(tmp_path: Path) -> None:
    with raises("site.unknown"):
        chains.stage(REPOSITORY / "jobs" / "isic_fedmr", tmp_path / "a", sites=("mars",))
    with raises("file.missing"):
        chains.stage(tmp_path, tmp_path / "b")


def test_fewer_hospitals_than_the_quorum_lower_it(tmp_path: Path) -> None:
    staged = chains.stage(REPOSITORY / "jobs" / "isic_fedmr", tmp_path / "staged", sites=("bcn", "msk"))
    assert json.loads((staged / "meta.json").read_text())["min_clients"] == 2
    job = load_job(staged / "app" / "config" / "fedmr.yaml")
    assert job.federation.min_sites == 2
    assert job.demo == isic_job("fedmr").demo


def test_a_job_for_whoever_is_connected_waits_for_nobody_by_name(tmp_path: Path) -> None:
    write_job(small_job(federation={"min_sites": 2}), tmp_path / "job", {})
    meta = json.loads((chains.stage(tmp_path / "job", tmp_path / "all") / "meta.json").read_text())
    assert chains.shortage(JobInfo.of(meta), ("bcn", "msk")) is None
    assert chains.shortage(JobInfo.of(meta), ("msk",)) == "needs 2 hospitals, connected 1: msk"
    staged = chains.stage(tmp_path / "job", tmp_path / "chosen", sites=("msk", "bcn"))
    assert json.loads((staged / "meta.json").read_text())["deploy_map"] == {"app": ["server", "msk", "bcn"]}


def test_a_follow_up_names_its_chain_where_the_server_lists_it(tmp_path: Path) -> None:
    source = REPOSITORY / "jobs" / "isic_fedmr"
    staged = chains.stage(source, tmp_path / "staged", adapt=lambda job: job.model_copy(update={"chain": "abc"}))
    meta = json.loads((staged / "meta.json").read_text()) | {
        "job_id": "j2",
        "submitter_name": "lead",
        "status": "RUNNING",
    }
    info = JobInfo.of(meta)
    assert (info.job, info.chain, info.owner) == ("j2", "abc", "lead")
    assert "server" not in info.sites
    assert JobInfo.of(meta | {"custom_props": None}).chain == "j2"


@pytest.mark.parametrize("secure", ["none", "statistics"])
def test_a_follow_up_without_a_hospital_waits_for_the_others_and_is_the_same_job(secure: str, tmp_path: Path) -> None:
    job = small_job(federation={"min_sites": 3, "secure": secure})
    write_job(job, tmp_path / "job", dict.fromkeys(("bcn", "msk", "rosendahl", "vienna-dias")))
    first = chains.stage_without(tmp_path / "job", tmp_path / "first", "abc", "bcn")
    second = chains.stage_without(first, tmp_path / "second", "abc", "msk")
    made, meta = load_job(second / "app" / "config" / "fedmr.yaml"), json.loads((second / "meta.json").read_text())
    assert made.federation.without == ("bcn", "msk")
    assert made.digest() == job.digest()
    assert settings_id(made) == settings_id(job), "nobody else has to approve it anew"
    assert made.federation.min_sites == 3
    assert meta["min_clients"] == 2
    asked = {"bcn", "msk"} if secure == "statistics" else set()
    assert set(meta["deploy_map"]["app"]) == {"server", "rosendahl", "vienna-dias", *asked}


def test_a_hospitals_kit_is_not_a_persons(provisioned: Path) -> None:
    with raises("file.missing"):
        Session(provisioned / "msk")
