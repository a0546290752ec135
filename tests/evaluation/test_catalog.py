"""Metrics by name: the built-in ones against scikit-learn, and one of the user's own beside them."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, recall_score, roc_auc_score

from fedmr_med.evaluation.base import Counts, Estimate, Metric
from fedmr_med.evaluation.catalog import METRICS, described, measure, register
from fedmr_med.evaluation.clinical import ScoreHistograms, softmax
from fedmr_med.evaluation.metrics import confusion_matrix, scored
from fedmr_med.evaluation.results import RunResults, read_result, write_result
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.report.document import write_report
from tests.helpers.errors import raises
from tests.helpers.outputs import outputs
from tests.helpers.packages import write_package

VERSION_1 = Path(__file__).with_name("results_version_1.json")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Callable[[Metric], Metric]:
    """Registers a metric until the test ends."""
    monkeypatch.setattr(METRICS, "_items", dict(METRICS._items))
    return register


def test_the_built_in_metrics_are_scikit_learns() -> None:
    logits, labels = outputs(0, count=2500)
    answers, probabilities = logits.argmax(1), softmax(logits)
    counts = Counts(confusion_matrix(labels, answers, 4), ScoreHistograms.of(logits, labels))
    overall, classes = measure(counts)
    found = {name: estimate.value for name, estimate in overall.items()}
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, answers), abs=1e-4)
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, answers), abs=1e-4)
    assert found["nll"] == pytest.approx(log_loss(labels, probabilities), abs=1e-4)
    macro = roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
    assert found["auroc"] == pytest.approx(macro, abs=0.002)
    for label, values in enumerate(classes):
        own = {"y_true": labels == label, "y_pred": answers == label}
        assert values["sensitivity"].value == pytest.approx(recall_score(**own), abs=1e-4)
        assert values["specificity"].value == pytest.approx(recall_score(**own, pos_label=False), abs=1e-4)


def test_the_expected_calibration_error_is_its_definition() -> None:
    """The mean distance of confidence and accuracy, weighted by the images of each tenth."""
    logits, labels = outputs(1, count=4000, sharpness=2.0)
    confidence, right = softmax(logits).max(1), logits.argmax(1) == labels
    tenth = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs(confidence[tenth == t].sum() - right[tenth == t].sum()) for t in range(10)]
    overall, _ = measure(Counts(confusion_matrix(labels, logits.argmax(1), 4), ScoreHistograms.of(logits, labels)))
    assert overall["calibration_error"].value == pytest.approx(sum(gaps) / 4000, abs=0.003)


def test_a_metric_of_ones_own_is_pooled_over_the_sites(added: Callable[[Metric], Metric]) -> None:
    added(Metric("errors", "wrong answers", lambda counts: float(counts.confusion.sum() - counts.confusion.trace())))
    added(Metric("images", "images", "mean", lambda counts: counts.confusion.sum(1)))
    sites = {name: scored(*outputs(seed, 200)) for seed, name in enumerate("ab")}
    evaluation = Evaluation.of(1, sites)
    wrong = {site: found.metrics["errors"].value for site, found in evaluation.figures.items()}
    assert evaluation.metrics["errors"] == sum(wrong.values()) > 0
    assert evaluation.metrics["images"] == 100
    assert sum(c.metrics["images"].value for c in evaluation.pooled_figures.classes) == 400
    assert evaluation.without_figures().metrics == evaluation.metrics, "each round keeps it"


def fails(counts: Counts) -> float:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ({"overall": fails}, True),
        ({"by_class": lambda counts: [0.5]}, True),
        ({"overall": lambda counts: math.nan}, False),
        ({"overall": lambda counts: None}, False),
        ({"by_class": lambda counts: []}, False),
    ],
)
def test_a_metric_without_a_value_is_left_out_and_a_broken_one_is_named(
    function: dict[str, Any], said: bool, added: Callable[[Metric], Metric], caplog: pytest.LogCaptureFixture
) -> None:
    counts = Counts(np.array([[5, 1], [2, 4]]))
    before = measure(counts)
    added(Metric("broken", "broken", **function))
    assert measure(counts) == before
    assert any("broken" in record.getMessage() for record in caplog.records) == said


def test_a_package_whose_metric_does_not_load_costs_that_metric_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts = Counts(np.array([[5, 1], [2, 4]]))
    before = measure(counts)
    write_package(tmp_path, "lost-metrics", {}, {"fedmr_med.metrics": {"lost": "lost_metrics:LOST"}})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(METRICS.__dict__, "_installed")  # the entry points are read once
    assert "lost" in METRICS
    assert measure(counts) == measure(counts) == before
    assert [record.getMessage().count("metric lost") for record in caplog.records] == [1], "said once"


def test_names_are_keys_and_taken_once(added: Callable[[Metric], Metric]) -> None:
    with raises("config.value", "name"):
        Metric("Cohen's kappa", "Cohen's kappa")
    with raises("registry.name-taken", "accuracy"):
        added(Metric("accuracy", "another accuracy", lambda counts: 1.0))


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (None, "-"),
        (Estimate(value=0.25), "0.250"),
        (Estimate(value=0.25, low=0.2, high=0.3), "0.250 (0.200 to 0.300)"),
    ],
)
def test_values_as_people_read_them(estimate: Estimate | None, text: str) -> None:
    assert described("auroc").text(estimate) == text


def test_results_with_a_metric_that_is_not_registered_here_are_read_and_shown(tmp_path: Path) -> None:
    (run,) = read_result(VERSION_1, RunResults).runs
    write_result(tmp_path / "results.json", RunResults(runs=(run,)))
    content = json.loads((tmp_path / "results.json").read_text())
    (evaluation,) = content["runs"][0]["history"]["evaluations"]
    evaluation["pooled_figures"]["metrics"]["of_another"] = {"value": 0.1234}
    evaluation["pooled_figures"]["classes"][0]["metrics"]["of_another"] = {"value": 0.4321}
    (tmp_path / "results.json").write_text(json.dumps(content))
    write_report([tmp_path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert all(text in page for text in ("of_another", "0.123", "0.432"))


def test_a_file_of_version_1_is_read_and_shown_as_it_was(tmp_path: Path) -> None:
    (run,) = read_result(VERSION_1, RunResults).runs
    labels = np.arange(12) % 2
    logits = np.random.default_rng(0).normal(size=(12, 2)) + np.eye(2)[labels]
    today = Evaluation.of(1, {"a": scored(logits, labels)})
    first, now = (
        _without(("temperature", "calibrated_nll", "set_thresholds"), evaluation.model_dump(mode="json"))
        for evaluation in (run.history.best_evaluation, today.model_copy(update={"metrics": {}}))
    )
    assert first == now, "but for what has been fitted to other sums, or added, since"
    shutil.copy(VERSION_1, tmp_path / "results.json")
    write_report([tmp_path], tmp_path / "report.html")
    assert "AUROC" in (tmp_path / "report.html").read_text()


def _without(keys: tuple[str, ...], content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without(keys, value) for key, value in content.items() if key not in keys}
    return [_without(keys, value) for value in content] if isinstance(content, list) else content
