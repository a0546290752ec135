"""Each defence does what its docstring says, to everything that leaves."""

import math

import numpy as np
import pytest
import torch

from fedmr_med.privacy.mechanisms import Gaussian, clipped_features, clipped_update
from fedmr_med.privacy.policy import STRICTER, Sharing, SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.statistics.base import Leaving
from fedmr_med.statistics.moments import KEPT
from tests.helpers.errors import raises

NAMES = ("a", "b", "c")
POLICY = SitePolicy(share_prototypes=("a", "b"), min_class_count=11)


def test_classes_that_are_small_or_opted_out_do_not_pass() -> None:
    assert POLICY.shareable_classes(np.array([11, 10, 50]), NAMES).tolist() == [True, False, False]


def test_a_scatter_matrix_leaves_whole_or_not_at_all() -> None:
    for counts, refused in (([11, 0, 0], False), ([11, 10, 0], True), ([11, 0, 50], True)):
        part = {"counts": np.array(counts), "sums": np.ones((3, 2)), "moments": np.ones(3)}
        if refused:
            with raises("policy.too-few-images"):
                KEPT.permitted(part, Leaving(POLICY, NAMES))
        else:
            assert KEPT.permitted(part, Leaving(POLICY, NAMES)) is part


def test_rounding_never_says_less_than_one_multiple() -> None:
    policy = SitePolicy(round_samples=10)
    assert [policy.rounded_up(n) for n in (0, 1, 10, 11)] == [0, 10, 10, 20]
    opted_out = [policy.released_samples(np.array([n]), ("a",)) for n in (0, 4, 26)]
    assert opted_out == [10, 10, 30]


def test_a_clipped_image_moves_the_sums_by_no_more_than_the_clip() -> None:
    features = torch.randn(50, 8, dtype=torch.float64) * 10
    clipped = clipped_features(features, 2.0)
    assert float(clipped.norm(dim=1).max()) <= 2.0 + 1e-12
    assert torch.equal(clipped_features(clipped / 100, 2.0), clipped / 100)
    outer = clipped[0][:, None] @ clipped[0][None]
    assert float(outer.norm()) <= 2.0**2 + 1e-12
    assert clipped_features(torch.full((1, 8), math.nan), 2.0).tolist() == [[0.0] * 8]


def test_a_clipped_update_is_as_long_as_the_clip_and_leaves_the_buffers() -> None:
    received = {"weight": np.ones(2, np.float32)}
    model = {"weight": np.array([4, 5], np.float32), "mean": np.array([9], np.float32)}
    clipped, length = clipped_update(model, received, 2.5)
    assert length == 5
    assert {name: array.tolist() for name, array in clipped.items()} == {"weight": [2.5, 3], "mean": [9]}
    assert clipped_update(model, received, 5) == (model, 5)


def test_noise_of_several_parties_adds_up_to_the_scale_of_one() -> None:
    """Four standard errors of a standard deviation of 40,000 numbers are 1.4 %."""
    gaussian = Gaussian(multiplier=2.0, norm=3.0)
    none, weights = ClassSums.zeros(40_000, 4), np.full(40_000, 500.0)
    parts = [gaussian.add_to(none, weights / 4, parts=4) for _ in range(4)]
    total = sum(parts[1:], start=parts[0])
    assert float(total.sums[:, 0].std()) == pytest.approx(2.0 * 3.0 * math.sqrt(1 + 1 / 16), rel=0.015)
    assert float(total.counts.double().std()) == pytest.approx(gaussian.counts_scale, rel=0.015)
    assert float(total.counts.double().mean()) == pytest.approx(500, abs=0.2)
    assert gaussian.counts_scale == pytest.approx(gaussian.sums_scale / (0.25 * 3.0))


def test_one_list_says_what_a_job_may_tighten() -> None:
    assert STRICTER.keys() == Sharing.model_fields.keys()
    assert SitePolicy().restricted_by(Sharing()).round_samples == SitePolicy().round_samples
