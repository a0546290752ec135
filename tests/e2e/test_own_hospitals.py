"""Two hospitals of somebody's own, with untidy folders: the page on them, from folder to prediction."""

import csv
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.documents import commands
from tests.helpers.own_hospitals import CLASSES, write_untidy_hospitals
from tests.helpers.simulator import clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = "--model small_cnn --rounds 1 --set train.updates=10 --set task.image_size=48 --set train.batch_size=16"


def test_six_commands_lead_from_two_untidy_folders_to_a_prediction(tmp_path: Path) -> None:
    write_untidy_hospitals(tmp_path / "mysites")
    printed = [shlex.split(line) for line in commands("docs/own-images.md")[:6]]
    assert [words[:3] for words in printed] == [
        ["fedmr-med", "data", "manifest"],
        ["fedmr-med", "data", "manifest"],
        ["fedmr-med", "data", "check"],
        ["fedmr-med", "jobs", "new"],
        ["nvflare", "simulator", "jobs/haut"],
        ["fedmr-med", "predict", "runs/haut/server/chains/simulate_job/best_model.pt"],
    ]
    said = {}
    for words in printed:
        small = shlex.split(SMALL) if words[1:3] == ["jobs", "new"] else []
        done = subprocess.run(
            [Path(sys.executable).with_name(words[0]), *words[1:], *small],
            cwd=tmp_path,
            env=clean_environment(FEDMR_MED_CACHE=str(tmp_path / "cache")),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        said[" ".join(words[1:3])] = done.stdout + done.stderr

    checked = said["data check"]
    assert "FIX" not in checked
    assert "halb.jpg: image file is truncated" in checked
    assert "DICOM files carry the name of a patient (1)" in checked
    assert "Kopie von Müller.jpg" in checked
    assert "DEMO" not in said["simulator jobs/haut"]
    page = (tmp_path / "runs" / "haut" / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in ("nord-klinik", "clinica-sur", *CLASSES))
    with (tmp_path / "predictions.csv").open(encoding="utf-8") as stream:
        rows = {Path(row["image"]).name: row for row in csv.DictReader(stream)}
    assert len(rows) == 111
    for name in ("IM0001", "aufnahme.dcm", "zwölf bit.png", "Kopie von Müller.jpg"):
        assert rows[name]["answer"] in CLASSES
    assert rows["halb.jpg"]["error"]
