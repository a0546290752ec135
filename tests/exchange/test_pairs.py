"""Two models compared at all sites: the same as scikit-learn's figures and scipy's test on the pooled images."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score

from fedmr_med.config import load_job
from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.pairs import PairRecord
from fedmr_med.inference.compare import pair_job
from fedmr_med.inference.predict import load_model as load_predictor
from fedmr_med.models.model_file import SavedModel, load_model
from fedmr_med.report.document import write_report
from fedmr_med.runner.federation import Federation
from fedmr_med.server.chain import BEST_MODEL, Chain
from fedmr_med.sites import SiteConfig
from tests.exchange.test_subgroups import LEARNS, OPEN, PICTURES, SITES, job_of
from tests.helpers.command_line import run as command
from tests.helpers.errors import raises
from tests.helpers.surveyed import CLASSES, write_hospitals


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospitals")
    write_hospitals(folder, PICTURES)
    return folder


@pytest.fixture(scope="module")
def models(hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models of the same task, of other networks; one has hardly learned anything."""
    folder = tmp_path_factory.mktemp("models")
    for name, changes in (("good", LEARNS), ("poor", {"model.name": "narrow_resnet"})):
        Federation(*job_of(hospitals, **{"task.subgroups": {}, **changes}), folder / name).run()
    return folder / "good" / BEST_MODEL, folder / "poor" / BEST_MODEL


def answers(model: Path, hospitals: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return truth and answers of all test images, hospital by hospital."""
    predictor, truth, said = load_predictor(model), [], []
    for site in SITES:
        table = {p.image: p for p in predictor.predict(hospitals / site / "manifest.csv")}
        own = [(number, one) for number, one in enumerate(PICTURES) if one.site == site and one.fold == "test"]
        truth += [one.label for _, one in own]
        said += [int(table[f"{number}.png"].logits.argmax()) for number, one in own]
    return np.array(truth), np.array(said)


def run_job(folder: Path, sites: dict[str, SiteConfig], out: Path, **federation: object) -> PairRecord:
    job = load_job(folder / "app" / "config" / "fedmr.yaml").override({"federation": {"min_sites": 3, **federation}})
    weights = next(folder.glob("*/config/initial_model.pt"))
    made = Federation(job.override({"model": {"weights": None}}), sites, out, initial_model=weights)
    state = made.run()
    Chain(out, made.job).write_results(state)
    found = state.history.evaluations[-1].against
    assert found is not None
    return found


@pytest.mark.slow
def test_all_sites_say_which_model_is_better(
    hospitals: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, poor = map(str, models)
    job = tmp_path / "job"
    options = ["--job", str(job), "--sites", str(hospitals)]
    assert command(monkeypatch, "evaluate", good, "--against", poor, *options) == 0
    _, sites = job_of(hospitals)
    found = run_job(job, sites, tmp_path / "plain")
    (truth, first), (_, second) = answers(models[0], hospitals), answers(models[1], hospitals)
    right = [said == truth for said in (first, second)]
    difference = balanced_accuracy_score(truth, first) - balanced_accuracy_score(truth, second)
    assert found.sites == SITES and found.difference.value == pytest.approx(difference, abs=1e-4)
    for label, one in enumerate(found.classes):
        own = truth == label
        alone = [(right[0] & ~right[1] & own).sum(), (right[1] & ~right[0] & own).sum()]
        assert [one.first, one.second] == alone
        expected = binomtest(alone[0], sum(alone), 0.5).pvalue if sum(alone) else None
        assert one.p == (None if expected is None else pytest.approx(expected, abs=1e-4))
    assert found.difference.low > 0, "the one that has learned is better"
    write_report([tmp_path / "plain"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "This model is better on these images by more than chance explains" in page
    assert found.p is not None and found.p < 0.001 and "&lt; 0.001" in page, "no p is zero"
    total = run_job(job, sites, tmp_path / "secure", secure="statistics")
    assert total.classes == found.classes and total.difference == found.difference


@pytest.mark.slow
def test_a_site_that_shares_no_scores_tells_nothing(
    hospitals: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job"
    options = ["--job", str(job), "--sites", str(hospitals)]
    assert command(monkeypatch, "evaluate", str(models[0]), "--against", str(models[1]), *options) == 0
    _, sites = job_of(hospitals)
    closed = OPEN.model_copy(update={"share_metrics": "none"})
    sites["sur"] = sites["sur"].model_copy(update={"policy": closed})
    found = run_job(job, sites, tmp_path / "run")
    assert found.sites == ("mitte", "nord") and found.silent == ("sur",)


def test_a_hospital_compares_on_its_own_images(
    hospitals: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, poor = map(str, models)
    place, out = str(hospitals / "sur"), tmp_path / "out"
    assert command(monkeypatch, "evaluate", good, place, "--against", poor, "-o", str(out)) == 0
    runs = json.loads((out / "results.json").read_text())["runs"]
    found = runs[0]["history"]["evaluations"][-1]["against"]
    own = [one for one in PICTURES if one.site == "sur" and one.fold == "test"]
    assert sum(one["images"] for one in found["classes"]) == len(own)
    scores = [run["history"]["evaluations"][-1]["pooled"]["mean_recall"] for run in runs]
    assert found["difference"]["value"] == pytest.approx(scores[0] - scores[1], abs=1e-4)
    assert "Against the other model" in (out / "report.html").read_text()


def test_models_of_different_tasks_are_not_compared(models: tuple[Path, Path]) -> None:
    good, poor = (load_model(path) for path in models)
    other = SavedModel(**vars(poor) | {"job": poor.job.override({"task": {"class_names": ["x", *CLASSES[1:]]}})})
    with raises("config.conflict", "--against", ConfigError):
        pair_job(good, other, {})


def test_a_model_that_is_more_than_its_network_is_compared_offline(models: tuple[Path, Path]) -> None:
    good, poor = (load_model(path) for path in models)
    flipped = SavedModel(**vars(poor) | {"job": poor.job.override({"model": {"views": "flips"}})})
    with raises("config.conflict", "--against", ConfigError):
        pair_job(good, flipped, {})
