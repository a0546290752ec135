"""FLamby's folder becomes one folder per hospital that loads as a hospital's own."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from fedmr_med import data
from fedmr_med.data.flamby_isic import HOSPITALS, LESIONS_FILE, PREPARED_FOLDER
from fedmr_med.data.split_sites import split_sites
from fedmr_med.errors import DataError
from fedmr_med.sites import ManifestSource, load_site
from tests.helpers.errors import raises
from tests.helpers.pictures import flamby_site, isic_task, write_csv, write_flamby_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_flamby_folder(tmp_path / "isic")
    return tmp_path / "isic"


def test_every_hospital_loads_the_same_as_its_centre(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "sites"
    report = split_sites(root, out)
    assert report.sites == dict.fromkeys(HOSPITALS, 8)
    assert report.absent == ()
    assert sorted(path.name for path in out.iterdir()) == sorted(HOSPITALS)
    for center, hospital in enumerate(HOSPITALS):
        site = load_site(out / hospital / "site.yaml").model_copy(update={"cache": tmp_path / "cache"})
        ours = data.load(site, isic_task(), seed=0)
        theirs = data.load(flamby_site(root, center), isic_task(), seed=0)
        for fold, expected in ((ours.train, theirs.train), (ours.test, theirs.test)):
            assert fold.labels.tolist() == expected.labels.tolist()
            assert all((fold[i] == expected[i]).all() for i in range(len(fold)))


def test_a_new_site_shares_nothing(root: Path, tmp_path: Path) -> None:
    split_sites(root, tmp_path / "sites")
    policy = load_site(tmp_path / "sites/msk/site.yaml").policy
    assert policy.share_prototypes is False
    assert policy.share_metrics == "none"
    assert policy.allow_submit_model is False
    assert "# true, false, or the names of the classes" in (tmp_path / "sites/msk/site.yaml").read_text()


def test_lesions_become_groups_and_leaks_are_written_down(root: Path, tmp_path: Path) -> None:
    lesions = [("L1", "ISIC_20"), ("L1", "ISIC_23"), ("L2", "ISIC_21"), ("L3", "ISIC_30")]
    write_csv(root / LESIONS_FILE, ("lesion_id", "image_id"), list(lesions))
    split_sites(root, tmp_path / "sites")
    leaking = tmp_path / "sites/vidir-modern"
    assert "images/ISIC_20.jpg,NV,train,L1" not in (leaking / "manifest.csv").read_text()
    assert "images/ISIC_20.jpg,BCC,train,L1" in (leaking / "manifest.csv").read_text()
    assert "by image: 1 test images" in (leaking / "site.yaml").read_text()

    def allows(hospital: str) -> bool:
        source = load_site(tmp_path / "sites" / hospital / "site.yaml").data
        assert isinstance(source, ManifestSource)
        return source.allow_shared_groups

    assert allows("vidir-modern")
    assert not allows("rosendahl")


def test_a_hospital_without_images_is_left_out(root: Path, tmp_path: Path) -> None:
    for path in (root / PREPARED_FOLDER).glob("ISIC_0*"):
        path.unlink()
    report = split_sites(root, tmp_path / "sites")
    assert report.absent == ("bcn",)
    assert not (tmp_path / "sites/bcn").exists()


def test_a_hospital_with_some_images_missing_is_an_error_and_nothing_is_written(root: Path, tmp_path: Path) -> None:
    (root / PREPARED_FOLDER / "ISIC_54.jpg").unlink()
    with raises("data.missing-images"):
        split_sites(root, tmp_path / "sites")
    assert not (tmp_path / "sites").exists()


def test_an_existing_folder_is_not_touched(root: Path, tmp_path: Path) -> None:
    (tmp_path / "sites/msk").mkdir(parents=True)
    with raises("file.exists", kind=DataError):
        split_sites(root, tmp_path / "sites")
    assert [path.name for path in (tmp_path / "sites").iterdir()] == ["msk"]


def test_no_image_at_all(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root / PREPARED_FOLDER)
    (root / PREPARED_FOLDER).mkdir()
    with raises("data.empty"):
        split_sites(root, tmp_path / "sites")


def test_images_are_linked_where_possible_else_copied(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_sites(root, tmp_path / "linked")
    original = root / PREPARED_FOLDER / "ISIC_40.jpg"
    assert (tmp_path / "linked/msk/images/ISIC_40.jpg").samefile(original)

    def other_disk(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    split_sites(root, tmp_path / "copied")
    copy = tmp_path / "copied/msk/images/ISIC_40.jpg"
    assert not copy.samefile(original)
    assert copy.read_bytes() == original.read_bytes()


def test_a_failure_leaves_no_half_hospital(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copy2", full)
    with raises("file.not-writable", kind=DataError):
        split_sites(root, tmp_path / "sites")
    assert list((tmp_path / "sites").iterdir()) == []
