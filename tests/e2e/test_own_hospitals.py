"""Two hospitals of somebody's own, with real images and untidy folders: from the table to a prediction."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import run
from tests.helpers.own_hospitals import CLASSES, write_own_hospitals
from tests.helpers.simulator import simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_from_two_untidy_folders_to_a_prediction(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    cache = {"FEDMR_MED_CACHE": str(tmp_path / "cache")}
    monkeypatch.setenv(*next(iter(cache.items())))
    isic = shared_data / "fed_isic2019"
    if not (isic / "ISIC_2019_Training_Input").is_dir():
        pytest.skip("no images of Fed-ISIC2019 beside the checkout")
    sites = tmp_path / "mysites"
    write_own_hospitals(isic, sites)

    assert run(monkeypatch, "data", "check", str(sites), "--classes", ",".join(CLASSES), "--json") == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    said = {finding["message"] for finding in findings if finding["outcome"] != "pass"}
    assert len(said) == 3, said
    assert any("halb.jpg: image file is truncated" in message for message in said)
    assert any("1 picture is in both folds" in message and "bilder/kopie.jpg" in message for message in said)
    assert any("test and train pictures nearly agree (1)" in message for message in said)

    options = ["--model", "small_cnn", "--rounds", "1", "--out", str(tmp_path / "jobs")]
    for setting in ("train.updates=10", "task.image_size=48", "train.batch_size=16"):
        options += ["--set", setting]
    arguments = ["--name", "lesions", "--sites", str(sites), "--classes", ",".join(CLASSES)]
    assert run(monkeypatch, "jobs", "new", *arguments, *options) == 0

    done = simulate(tmp_path / "jobs" / "lesions", tmp_path / "run", "-t", "2", environment=cache)
    assert done.exit_code == 0, done.output[-3000:]
    assert "nord-klinik: 1 picture is in both folds" in done.output
    assert "nord-klinik: 39 training and 25 test images (1 unreadable)" in done.output
    assert "ClientTaskWorker" not in done.output, "FLARE's own lines are for the log file"
    assert "ClientTaskWorker" in (done.workspace / "nord-klinik" / "log.txt").read_text()
    assert "DEMO" not in done.output

    page = (done.workspace / "report.html").read_text()
    assert all(name in page for name in ("nord-klinik", "clinica-sur", *CLASSES))
    assert "1 images could not be read" in page

    table = tmp_path / "predictions.csv"
    images = sites / "nord-klinik" / "bilder"
    run(monkeypatch, "predict", str(done.chain / "best_model.pt"), str(images), "-o", str(table), "--json")
    with table.open() as stream:
        rows = {Path(row["image"]).name: row for row in csv.DictReader(stream)}
    assert {"bild16.dcm", "kopie.jpg"} <= rows.keys()
    assert all(name in text for name in CLASSES for text in [" ".join(rows["bild16.dcm"])])
