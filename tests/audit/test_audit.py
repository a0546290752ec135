"""The audit finds what an open site gives away, and nothing in masked vectors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fedmr_med.audit import attacks
from fedmr_med.audit.run import NOISE, NONE, SECURE, SMALL_CELLS
from fedmr_med.cli import app
from fedmr_med.jobs.folder import write_job
from fedmr_med.prototypes import ClassSums
from tests.helpers.small import small_job

LABELS = np.array([0] * 20 + [1] * 5 + [2])
FEATURES = np.random.default_rng(0).normal(1, 1, (26, 4))
COUNTS = np.array([20, 5, 1])
PLAIN = ClassSums.from_features(torch.from_numpy(FEATURES), torch.from_numpy(LABELS), 3)


def plain(features: np.ndarray, labels: np.ndarray) -> ClassSums:
    return ClassSums.from_features(torch.from_numpy(features), torch.from_numpy(labels), 3)


def test_attacks_on_plain_sums_succeed() -> None:
    assert attacks.counts_read(PLAIN, COUNTS) == 1
    assert attacks.differencing(plain, FEATURES, LABELS, np.array([0, 21])) == pytest.approx(1)
    assert attacks.nearest_image(PLAIN, FEATURES) == pytest.approx(1 / 3), "the class with one image"
    others = FEATURES + np.random.default_rng(1).normal(0, 3, FEATURES.shape)
    assert attacks.membership_by_prototype(PLAIN, (FEATURES, LABELS), (others, LABELS)) > 0.3


def test_subtraction_finds_withheld_images_in_exact_numbers_only() -> None:
    shared = PLAIN.only(torch.tensor([True, False, False]))
    assert attacks.withheld_by_subtraction(shared, 26, COUNTS) == 1
    assert attacks.withheld_by_subtraction(shared, 30, COUNTS) == 0


def test_the_bias_of_one_large_step_tells_the_histogram() -> None:
    bias = np.zeros(3)
    assert attacks.histogram_from_bias(1 / 3 - COUNTS / 26, bias, COUNTS) == 1


def test_nothing_is_found_where_nothing_leaves() -> None:
    assert attacks.counts_read(None, COUNTS) == attacks.nearest_image(None, FEATURES) == 0
    assert attacks.membership_by_prototype(None, (FEATURES, LABELS), (FEATURES, LABELS)) == 0


def test_the_command_attacks_a_site_under_each_defence(tmp_path: Path) -> None:
    job = small_job()
    write_job(job, tmp_path / "job", {})
    site = tmp_path / "rosendahl" / "site.yaml"
    site.parent.mkdir()
    site.write_text("data: {source: demo, center: 3}\npolicy: {share_prototypes: false, training: null}\n")
    command = ["privacy", "audit", str(site), "--job", str(tmp_path / "job"), "--out", str(tmp_path / "audit.json")]
    done = CliRunner().invoke(app, [*command, "--fail-above", "0.99", "--defence", NONE])
    assert done.exit_code == 1, done.output
    assert "above 0.99" in done.output
    found = json.loads((tmp_path / "audit.json").read_text())["findings"]
    success = {(entry["defence"], entry["attack"]): entry["success"] for entry in found}
    assert success[NONE, "class counts"] == 1
    assert success[NONE, "one image by differencing"] > 0.99
    assert success["policy", "class counts"] == 0
    assert success[SMALL_CELLS, "prototype is one image"] == 0
    assert success[NOISE, "one image by differencing"] < 0.6
    for attack in ("class counts", "prototype is one image", "test counts from the confusion matrix"):
        assert success[SECURE, attack] == 0
    assert success[SECURE, "one image by differencing"] < 0.6
