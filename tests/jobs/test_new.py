"""A job for anybody's hospitals and classes; what does not fit is said before anything is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedmr_med.config import load_job
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.jobs.new import new_job
from fedmr_med.privacy.refusals import ClassNamesError, FloorError
from fedmr_med.sites import ManifestSource, load_site
from tests.helpers import REPOSITORY
from tests.helpers.command_line import run
from tests.helpers.pictures import write_manifest_folder

CLASSES = ("red", "green", "blue")
SITE = "data: {source: manifest, root: .}\npolicy: {share_metrics: per_class, training: {min_sites: 1}}\n"


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    rows = [(f"{i}.png", "red", "train", "") for i in range(200)] + [("b.png", "blue", "test", "")]
    for name in ("north", "south"):
        folder = tmp_path / "mine" / name
        write_manifest_folder(folder, rows, pictures=False)
        (folder / "site.yaml").write_text(SITE)
    return tmp_path / "mine"


def test_the_command_writes_a_job_that_can_be_read_again(
    tmp_path: Path, sites: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    base = REPOSITORY / "jobs" / "isic_fedmr"
    arguments = ["--name", "lesions", "--sites", str(sites), "--classes", "red, green,blue", "--base", str(base)]
    options = ["--model", "small_cnn", "--rounds", "2", "--set", "train.updates=12", "--out", str(tmp_path / "jobs")]
    assert run(monkeypatch, "jobs", "new", *arguments, *options, "--json") == 0
    folder = tmp_path / "jobs" / "lesions"
    said = json.loads(capsys.readouterr().out)
    assert said == {"folder": str(folder), "sites": ["north", "south"], "without_scores": []}
    job = load_job(folder / "app" / "config" / "fedmr.yaml")
    assert (job.name, job.task.class_names, job.task.dataset) == ("lesions", CLASSES, "lesions")
    assert (job.model.name, job.model.options, job.method.name) == ("small_cnn", {}, "fedmr")
    assert (job.federation.rounds, job.federation.min_sites, job.train.updates) == (2, 2, 12)
    assert (job.loss.class_weights, job.demo) == ("local", {})
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", "north", "south"]}
    carried = load_site(folder / "app" / "config" / "sites" / "north" / "site.yaml")
    assert isinstance(carried.data, ManifestSource) and carried.data.root == sites / "north"


def test_the_quorum_is_two_thirds(sites: Path) -> None:
    assert new_job("x", sites, CLASSES)[0].federation.min_sites == 2
    (sites / "south").rename(sites.parent / "gone")
    assert new_job("x", sites, CLASSES, method="fedavg")[0].federation.min_sites == 1


def test_a_round_is_sized_to_the_hospitals(sites: Path) -> None:
    assert new_job("x", sites, CLASSES)[0].train.updates == 16  # 5 passes over 200 images in batches of 64
    assert new_job("x", sites, CLASSES, changes={"train.updates": 30})[0].train.updates == 30
    assert new_job("x", sites, CLASSES, changes={"train.batch_size": 16})[0].train.updates == 63
    write_manifest_folder(sites / "south", [(f"{i}.png", "red", "train", "") for i in range(40)], pictures=False)
    train = new_job("x", sites, CLASSES)[0].train
    assert (train.batch_size, train.updates) == (32, 19)


def test_what_does_not_fit_is_said(tmp_path: Path, sites: Path) -> None:
    with pytest.raises(ConfigError, match=r"--name a/b"):
        new_job("a/b", sites, CLASSES)
    with pytest.raises(ConfigError, match=r"--classes red,red: give two or more different names"):
        new_job("x", sites, ["red", "red"])
    with pytest.raises(ConfigError, match="has no folder in it"):
        new_job("x", tmp_path / "nowhere", CLASSES)
    with pytest.raises(DataError, match=r"row 202: label 'blue' is not one of .*green, red"):
        new_job("x", sites, CLASSES[:2])
    with pytest.raises(ConfigError, match="--base what is neither"):
        new_job("x", sites, CLASSES, base=Path("what"))
    with pytest.raises(
        FloorError, match=r"north would refuse this job: train\.batch_size is 2;.*Change its site\.yaml"
    ):
        new_job("x", sites, CLASSES, changes={"train.batch_size": 2})
    (sites / "south" / "site.yaml").write_text("data: {source: manifest, root: .}\n")
    with pytest.raises(FloorError, match=r"south would refuse this job: .*policy\.training\.min_sites asks for 3"):
        new_job("x", sites, CLASSES)
    (sites / "west").mkdir()
    with pytest.raises(ConfigError, match=r"west has no site\.yaml; `fedmr-med data manifest"):
        new_job("x", sites, CLASSES)
    text = "data: {source: manifest, root: .}\nclasses: [blue, red, green]\n"
    (sites / "west" / "site.yaml").write_text(text)
    with pytest.raises(ClassNamesError):
        new_job("x", sites, CLASSES)
