"""Two hospitals of a hundred pictures each: one of three classes has enough test images to leave.

A model that calls every picture by that class is right on all test images that count. Nobody may read that as a score.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fedmr_med.models.model_file import load_model
from tests.helpers.command_line import run
from tests.helpers.own_hospitals import write_small_hospitals
from tests.helpers.simulator import simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLASSES = ("Naevus", "Melanom", "Basaliom")
SENTENCE = (
    "The score is over 1 of 3 classes, 2 of 2 sites: of Melanom, Basaliom too few test images may leave the sites "
    "(each holds them back by share_metrics, min_class_count or min_cell_count of its policy), or there are none. "
    "So there is no balanced accuracy, nobody can tell the best model, and the last one is kept."
)


def test_a_model_that_knows_one_class_is_never_called_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    cache = {"FEDMR_MED_CACHE": str(tmp_path / "cache")}
    monkeypatch.setenv(*next(iter(cache.items())))
    write_small_hospitals(tmp_path / "sites", CLASSES)
    options = ["--model", "small_cnn", "--rounds", "2", "--out", str(tmp_path / "jobs")]
    for setting in ("train.updates=10", "task.image_size=32", "train.batch_size=16", "federation.stop.patience=1"):
        options += ["--set", setting]
    arguments = ["--name", "haut", "--sites", str(tmp_path / "sites"), "--classes", ",".join(CLASSES)]
    assert run(monkeypatch, "jobs", "new", *arguments, *options) == 0
    done = simulate(tmp_path / "jobs" / "haut", tmp_path / "run", "-t", "2", environment=cache)
    assert done.exit_code == 0, done.output[-3000:]

    said = " ".join(done.output.split())
    assert "received model: no score, 1 of 3 classes" in said
    assert "federation.stop cannot act: test images of 1 of 3 classes, 2 of 2 sites count" in said
    assert SENTENCE in said

    results = json.loads((done.chain / "results.json").read_text())["runs"][0]
    assert (results["best"]["round"], results["best"]["balanced_accuracy"]) == (2, None)
    assert results["best_balanced_accuracy"] is results["best_accuracy"] is None
    for evaluation in [*results["history"]["evaluations"], results["history"]["head"]["evaluation"]]:
        for score in (evaluation["pooled"], *evaluation["sites"].values()):
            assert (score["accuracy"], score["mean_recall"], score["balanced_accuracy"]) == (None, None, None)
        assert evaluation["metrics"] == {}

    kept = load_model(done.chain / "best_model.pt")
    assert (kept.round, kept.temperature, kept.about["chosen"]) == (2, None, "last")

    page = (done.workspace / "report.html").read_text()
    assert run(monkeypatch, "export", str(done.chain / "best_model.pt"), "-o", str(tmp_path / "bundle")) == 0
    card = (tmp_path / "bundle" / "docs" / "README.md").read_text()
    for text in (" ".join(page.split()), " ".join(card.split())):
        assert SENTENCE in text
    for text in (done.output, page, card):
        assert "1.000" not in text
    capsys.readouterr()
    here = [str(tmp_path / "sites" / "nord"), "-o", str(tmp_path / "evaluation")]
    assert run(monkeypatch, "evaluate", str(done.chain / "best_model.pt"), *here) == 0
    assert "balanced accuracy: 0." in capsys.readouterr().out
