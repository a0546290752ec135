"""``fedmr-med data``: results on stdout, everything else on stderr, and an exit code."""

import json
from pathlib import Path

import pytest

from fedmr_med.data.flamby_isic import HOSPITALS, PREPARED_FOLDER, RAW_FOLDER
from fedmr_med.errors import DataError
from tests.helpers.command_line import call
from tests.helpers.errors import raises
from tests.helpers.pictures import write_flamby_folder, write_picture


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    for seed in range(3):
        write_picture(tmp_path / "raw" / RAW_FOLDER / f"ISIC_{seed}.jpg", size=(40, 30), seed=seed)
    return tmp_path / "raw"


def test_prepare_isic(raw: Path, tmp_path: Path) -> None:
    words = ["data", "prepare-isic", raw, tmp_path / "out", "--edge", "24", "--workers", "1", "--json"]
    folder = str(tmp_path / "out" / PREPARED_FOLDER)
    assert json.loads(call(*words).stdout) == {"folder": folder, "written": 3, "kept": 0, "failed": []}
    assert json.loads(call(*words).stdout)["kept"] == 3


def test_prepare_isic_with_an_unreadable_image_fails_but_does_the_rest(raw: Path, tmp_path: Path) -> None:
    (raw / RAW_FOLDER / "ISIC_1.jpg").write_bytes(b"")
    result = call("data", "prepare-isic", raw, tmp_path / "out", code=1)
    assert "2 images prepared, 0 were there, 1 cannot be read" in result.stdout
    assert "ISIC_1.jpg: the file is empty" in result.stderr


def test_split_sites(tmp_path: Path) -> None:
    write_flamby_folder(tmp_path / "isic")
    words = ["data", "split-sites", tmp_path / "sites", "--root", tmp_path / "isic", "--json"]
    assert json.loads(call(*words).stdout)["sites"] == dict.fromkeys(HOSPITALS, 8)
    with raises("file.exists", kind=DataError):
        call(*words)


def test_describe(tmp_path: Path) -> None:
    result = call("data", "describe", "demo", "--json", "--html", tmp_path / "table.html")
    assert [site["name"] for site in json.loads(result.stdout)["sites"]] == list(HOSPITALS)
    assert 'vienna-dias</th><td data-column="MEL"' in (tmp_path / "table.html").read_text()
    assert "Drawn to" in result.stderr
    assert "vienna-dias" in call("data", "describe", "demo").stdout
