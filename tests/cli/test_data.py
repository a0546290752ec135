"""``fedmr-med data``: results on stdout, everything else on stderr, and an exit code."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedmr_med.cli.data import app
from fedmr_med.data.flamby_isic import HOSPITALS, PREPARED_FOLDER, RAW_FOLDER
from fedmr_med.errors import DataError
from tests.helpers.errors import raises
from tests.helpers.pictures import write_flamby_folder, write_picture

runner = CliRunner()


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    for seed in range(3):
        write_picture(tmp_path / "raw" / RAW_FOLDER / f"ISIC_{seed}.jpg", size=(40, 30), seed=seed)
    return tmp_path / "raw"


def test_prepare_isic(raw: Path, tmp_path: Path) -> None:
    arguments = ["prepare-isic", str(raw), str(tmp_path / "out"), "--edge", "24", "--workers", "1", "--json"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    folder = str(tmp_path / "out" / PREPARED_FOLDER)
    assert json.loads(result.stdout) == {"folder": folder, "written": 3, "kept": 0, "failed": []}
    assert json.loads(runner.invoke(app, arguments).stdout)["kept"] == 3


def test_prepare_isic_with_an_unreadable_image_fails_but_does_the_rest(raw: Path, tmp_path: Path) -> None:
    (raw / RAW_FOLDER / "ISIC_1.jpg").write_bytes(b"")
    result = runner.invoke(app, ["prepare-isic", str(raw), str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "2 images prepared, 0 were there, 1 cannot be read" in result.stdout
    assert "ISIC_1.jpg: the file is empty" in result.stderr


def test_split_sites(tmp_path: Path) -> None:
    write_flamby_folder(tmp_path / "isic")
    arguments = ["split-sites", str(tmp_path / "sites"), "--root", str(tmp_path / "isic"), "--json"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["sites"] == dict.fromkeys(HOSPITALS, 8)
    with raises("file.exists", kind=DataError):
        runner.invoke(app, arguments, catch_exceptions=False)


def test_describe(tmp_path: Path) -> None:
    result = runner.invoke(app, ["describe", "demo", "--json", "--html", str(tmp_path / "table.html")])
    assert result.exit_code == 0
    assert [site["name"] for site in json.loads(result.stdout)["sites"]] == list(HOSPITALS)
    assert 'vienna-dias</th><td data-column="MEL"' in (tmp_path / "table.html").read_text()
    assert "Drawn to" in result.stderr
    assert "vienna-dias" in runner.invoke(app, ["describe", "demo"]).stdout
