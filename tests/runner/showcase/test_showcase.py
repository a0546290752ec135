"""The demo of the front door: what it leaves behind, and that its picture and figures are those of its models."""

import io
import json
import re
from contextlib import redirect_stderr
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.results import RunResult, RunResults, read_result
from fedmr_med.models.model_file import load_model
from fedmr_med.runner.showcase import Showcase, demo
from fedmr_med.runner.showcase.picture import claim_picture
from fedmr_med.runner.showcase.plan import (
    ALONE,
    CLASSES,
    FEDAVG,
    FEDMR,
    HOSPITALS,
    LABELS,
    LAST,
    OPT_OUT,
    OPTED_OUT,
    runs,
)
from fedmr_med.runner.showcase.work import Outcome, carry_out, holds
from tests.helpers.errors import raises

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def said() -> io.StringIO:
    """What the demo says while it runs."""
    return io.StringIO()


@pytest.fixture(scope="module")
def shown(said: io.StringIO, tmp_path_factory: pytest.TempPathFactory) -> Showcase:
    """The demo with two rounds."""
    with redirect_stderr(said):
        return demo(tmp_path_factory.mktemp("demo") / "fedmr-demo", rounds=2)


def outcome_of(answers: np.ndarray, label: str) -> Outcome:
    """An outcome with one test picture of each class, and given answers, (C, C)."""
    run = next(run for run in runs([0], 1) if run.label == label)
    return Outcome(
        run, RunResult.of(run.setup(), History()), np.arange(len(CLASSES)), answers.astype(np.float32), Path()
    )


def test_every_class_is_held_somewhere_and_every_hospital_lacks_most() -> None:
    assert {name for classes in HOSPITALS.values() for name in classes} == set(CLASSES)
    assert all(len(classes) < len(CLASSES) / 2 for classes in HOSPITALS.values())


def test_the_four_ways_differ_in_what_they_say_and_in_nothing_else() -> None:
    planned = runs([3], 5)
    by_label = {run.label: run for run in planned}
    assert {run.label for run in planned} == set(LABELS)
    assert len([run for run in planned if run.label == ALONE]) == len(HOSPITALS)
    fedmr = by_label[FEDMR].job
    for run in planned:
        assert (run.job.train, run.job.model) == (fedmr.train, fedmr.model)
        assert (run.job.federation.rounds, run.job.seed) == (5, 3)
    assert fedmr.method.options == {"variant": "replayed"}
    assert by_label[FEDAVG].job.method.name == "fedavg"
    sharing = {name for name, site in by_label[OPT_OUT].sites.items() if site.policy.share_prototypes}
    assert sharing == HOSPITALS.keys() - {OPTED_OUT}


@pytest.mark.slow
def test_it_leaves_a_page_a_picture_results_and_a_model(shown: Showcase) -> None:
    page = shown.report.read_text(encoding="utf-8")
    assert "DEMO on generated pictures" in page
    assert all(label in page for label in LABELS)
    assert page.count('class="claim"') == 3, "a panel for each way of training"
    results = read_result(shown.folder / "results.json", RunResults).runs
    assert [row.label for row in shown.rows] == list(LABELS)
    assert {run.label for run in results} == set(LABELS)
    assert all(run.demo and len(run.rounds) == 2 for run in results)
    assert load_model(shown.folder / "best_model.pt").job.task.class_names == CLASSES
    assert len(list((shown.folder / "images").glob("*.png"))) == 2 * len(CLASSES)


@pytest.mark.slow
def test_its_table_is_of_its_results(shown: Showcase) -> None:
    content = json.loads((shown.folder / "results.json").read_text())["runs"]
    (fedmr,) = [run for run in content if run["label"] == FEDMR]
    by_label = {row.label: row for row in shown.rows}
    assert by_label[FEDMR].score.mean == pytest.approx(np.mean([r["balanced_accuracy"] for r in fedmr["rounds"]]))
    alone = [r["balanced_accuracy"] for run in content if run["label"] == ALONE for r in run["rounds"]]
    assert by_label[ALONE].score.mean == pytest.approx(np.mean(alone))
    assert by_label[ALONE].missing.mean == 0, "no model answers with a class that it never saw"
    assert max(alone) <= 2 / 6, "two of six classes is all that a hospital alone can know"


@pytest.mark.slow
def test_a_second_run_takes_the_place_of_the_first_and_no_other_folder_is_touched(
    shown: Showcase, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with raises("file.foreign", "--out"):
        demo(tmp_path, rounds=1, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_one_seed_gives_one_result(shown: Showcase, tmp_path: Path) -> None:
    (run,) = [run for run in runs([0], 2) if run.label == FEDMR]
    outcome = carry_out(run, tmp_path, lambda state: None)
    row = next(row for row in shown.rows if row.label == FEDMR)
    assert [r.balanced_accuracy for r in outcome.result.rounds] == list(row.curves[0])


def test_the_picture_counts_and_places_what_the_models_answer() -> None:
    sure = 50 * np.eye(len(CLASSES))
    blind = sure.copy()
    blind[~holds("north")] = sure[CLASSES.index("MEL")]  # whatever north lacks is taken for a class that it holds
    picture = str(claim_picture([outcome_of(blind, FEDAVG), outcome_of(sure, FEDMR)], "north"))
    root = ElementTree.fromstring(picture)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert [text for text in texts if text and "never" in text] == [
        "classes it never saw: 0 % right",
        "classes it never saw: 100 % right",
    ]
    left, right = (
        {title.text: dot for dot in panel.iter(f"{SVG}circle") for title in dot} for panel in root.iter(f"{SVG}g")
    )
    assert apart(left["DF, called MEL"], left["MEL, recognized"]) < 50
    assert apart(right["DF, recognized"], right["MEL, recognized"]) > 50


def apart(first: ElementTree.Element, second: ElementTree.Element) -> float:
    """Return the distance between two dots."""
    across, up = (float(first.get(axis, 0)) - float(second.get(axis, 0)) for axis in ("cx", "cy"))
    return float(np.hypot(across, up))


def test_what_a_run_takes_is_its_rounds_at_all_of_its_sites() -> None:
    steps = {run.title: run.steps for run in runs([0], 4)}
    assert steps == dict.fromkeys((FEDAVG, FEDMR, OPT_OUT), 16) | {f"{name} alone": 4 for name in HOSPITALS}


@pytest.mark.slow
def test_it_says_how_far_it_is(shown: Showcase, said: io.StringIO) -> None:
    assert "FedMR: step 8/8, balanced accuracy 0." in said.getvalue()
    assert "about 0 min 0 s left in all" in said.getvalue()


@pytest.mark.nightly
def test_fedmr_keeps_what_fedavg_loses_with_three_seeds(tmp_path: Path) -> None:
    shown = demo(tmp_path / "demo", seeds=(2, 3, 4), quiet=True)
    by_label = {row.label: row for row in shown.rows}
    for fedavg, fedmr, opt_out in zip(*(by_label[label].curves for label in (FEDAVG, FEDMR, OPT_OUT)), strict=True):
        assert np.mean(fedmr[-LAST:]) > np.mean(fedavg[-LAST:]) + 0.15
        assert np.mean(opt_out[-LAST:]) > np.mean(fedavg[-LAST:])
    assert by_label[FEDMR].missing.mean > by_label[FEDAVG].missing.mean
    assert by_label[FEDAVG].score.mean > by_label[ALONE].score.mean
    assert re.search(r"± 0\.\d\d", shown.report.read_text())
