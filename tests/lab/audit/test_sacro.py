"""The attacks on membership in the form of SACRO-ML's reports: its metrics, and a file that its own readers take."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

from fedmr_med.lab.audit.attacks.images import Guess
from fedmr_med.lab.audit.sacro import metrics, probabilities, roc, write_sacro
from fedmr_med.privacy.findings import Audit, Finding

GENERATOR = np.random.default_rng(0)
TELLING = Guess("membership by prototype", "none", GENERATOR.normal(1, 1, 200).round(1), GENERATOR.normal(0, 1, 60))
SILENT = Guess("membership by prototype", "noise", GENERATOR.normal(0, 1, 150), GENERATOR.normal(0, 1, 150))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    about = {"site": "msk", "images": (200, 60), "classes": {"NV": 200}, "demo": False, "trained": "small_cnn"}
    found = (Finding(defence="none", attack="membership by prototype", success=0.5),)
    audit = Audit(**about, noise=2, epsilon=2.2, cohort=(), findings=found, sizes=())
    write_sacro(tmp_path / "report.json", audit, [TELLING, SILENT])
    return tmp_path / "report.json"


@pytest.mark.parametrize("guess", [TELLING, SILENT])
def test_rates_and_curve_are_those_of_scikit_learn(guess: Guess) -> None:
    found = metrics(guess)
    probability, members = probabilities(guess)
    tn, fp, fn, tp = confusion_matrix(members, probability > 0.5).ravel().tolist()
    assert (found["TPR"], found["FPR"]) == (pytest.approx(tp / (tp + fn)), pytest.approx(fp / (fp + tn)))
    assert (found["PPV"], found["NPV"]) == (pytest.approx(tp / (tp + fp)), pytest.approx(tn / (tn + fn)))
    assert found["AUC"] == pytest.approx(roc_auc_score(members, probability))
    ours, theirs = roc(probability, members), roc_curve(members, probability, drop_intermediate=False)
    assert all(np.allclose(a[1:], b[1:]) for a, b in zip(ours, theirs, strict=True))


def test_as_many_are_called_members_as_there_are() -> None:
    probability, members = probabilities(SILENT)
    assert (probability > 0.5).sum() == members.sum()
    scores = np.concatenate([SILENT.members, SILENT.others])
    assert np.array_equal(np.argsort(scores), np.argsort(probability))


def test_an_attack_that_tells_something_is_significant() -> None:
    assert metrics(TELLING)["P_HIGHER_AUC"] < 1e-6
    assert metrics(TELLING)["FDIF01"] > 0.2
    assert metrics(SILENT)["P_HIGHER_AUC"] > 0.01


def test_the_file_has_the_form_of_a_report(written: Path) -> None:
    content: dict[str, Any] = json.loads(written.read_text())
    assert len(content) == 2
    for key, entry in content.items():
        assert key == f"{entry['metadata']['attack_name']}_{entry['log_id']}"
        instance = entry["attack_experiment_logger"]["attack_instance_logger"]["instance_0"]
        names = ("TPR", "FPR", "FAR", "TNR", "PPV", "NPV", "FNR", "ACC", "F1score", "Advantage", "AUC", "P_HIGHER_AUC")
        assert set(names) <= instance.keys()
        assert {"FMAX01", "FMIN01", "FDIF01", "PDIF01", "TPR@0.1%", "fpr", "tpr"} <= instance.keys()


def test_sacro_ml_gives_the_same_metrics() -> None:
    theirs_of = pytest.importorskip("sacroml.metrics").get_metrics
    for guess in (TELLING, SILENT):
        probability, members = probabilities(guess)
        theirs, ours = theirs_of(np.stack([1 - probability, probability], 1), members.astype(int)), metrics(guess)
        # TPR at an FPR is interpolated there, between thresholds, and is what is reached here. Ties of scores are in
        # an order of their own at the ends.
        plain = [name for name in theirs if not name.startswith(("TPR@", "F", "PDIF")) and name not in ("fpr", "tpr")]
        for name in (*(name for name in plain if name != "roc_thresh"), "FPR", "FAR", "FNR", "F1score"):
            assert ours[name] == pytest.approx(float(theirs[name]), abs=1e-6), name
        assert theirs.keys() <= ours.keys()
    for name in ("FMAX01", "FMIN01", "FDIF01", "PDIF01", "FMAX02", "PDIF02", "FDIF001"):
        assert ours[name] == pytest.approx(float(theirs[name]), abs=1e-6), name


def test_sacro_ml_reads_the_file(written: Path, tmp_path: Path) -> None:
    formatter = pytest.importorskip("sacroml.attacks.attack_report_formatter")
    report = pytest.importorskip("sacroml.attacks.report")
    text = formatter.GenerateTextReport()
    text.process_attack_target_json(str(written))
    text.export_to_file(str(tmp_path / "summary.txt"))
    summary = (tmp_path / "summary.txt").read_text()
    said = "10% AUC are statistically significant in experiment membership by prototype, defence"
    assert f">{said} none" in summary and f"<{said} noise" in summary
    content = json.loads(written.read_text())
    means = formatter.SummariseUnivariateMetricsModule(content).process_dict()
    assert sorted(round(entry["AUC"]["mean"], 3) for entry in means.values()) == sorted(
        round(guess.area, 3) for guess in (TELLING, SILENT)
    )
    assert formatter.SummariseAUCPvalsModule(content).process_dict()["n_sig_uncorrected"] == 1
    for entry in content.values():
        assert report.create_mia_report(entry).page_no() >= 2
