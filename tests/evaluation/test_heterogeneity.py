"""The variance between hospitals and the interval of a new one, against scipy and a simulation."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from fedmr_med.evaluation.heterogeneity import FEWEST, apart_from, between, prediction, student975
from fedmr_med.evaluation.metrics import Scores, scored, scores


@pytest.mark.parametrize("freedom", [1, 2, 5, 29, 30, 31, 60, 500])
def test_students_quantile_is_that_of_scipy(freedom: int) -> None:
    assert student975(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_that_of_the_moments_equation(seed: int) -> None:
    """DerSimonian and Laird's variance is the one with which Cochran's Q, at fixed weights, has its expected value."""
    generator = np.random.default_rng(seed)
    variances = generator.uniform(0.01, 0.5, 7)
    logits = generator.normal(1, np.sqrt(variances + 0.3))
    weights = 1 / variances
    cochran = float((weights * (logits - np.average(logits, weights=weights)) ** 2).sum())

    def expected(tau2: float) -> float:
        # E[Q] = sum w (v + tau2) - sum w^2 (v + tau2) / sum w, for independent estimates.
        return float((weights * (variances + tau2)).sum() - (weights**2 * (variances + tau2)).sum() / weights.sum())

    tau2 = optimize.brentq(lambda t: expected(t) - cochran, -1, 100)
    tau2 = max(tau2, 0.0)
    random = 1 / (variances + tau2)
    mean = np.average(logits, weights=random)
    half = stats.t.ppf(0.975, 5) * math.sqrt(tau2 + 1 / random.sum())
    found = prediction(logits.tolist(), variances.tolist())
    assert found == pytest.approx((mean, math.sqrt(tau2), mean - half, mean + half), rel=1e-4, abs=1e-4)


def test_a_new_hospital_is_in_the_interval_in_about_95_of_100_cases() -> None:
    generator, hits = np.random.default_rng(0), []
    for _ in range(400):
        true = generator.normal(1.0, 0.6, 9)
        images = generator.integers(80, 400, 9)
        right = generator.binomial(images, 1 / (1 + np.exp(-true)))
        yes, no = right + 0.5, images - right + 0.5
        _, _, low, high = prediction(np.log(yes / no)[:8].tolist(), (1 / yes + 1 / no)[:8].tolist())
        hits.append(low < true[8] < high)
    assert 0.90 <= np.mean(hits) <= 0.98


def site(seed: int, strength: float, count: int = 150) -> Scores:
    generator = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], count // 3)
    return scored(generator.normal(size=(len(labels), 3)) + strength * np.eye(3)[labels], labels)


def test_hospitals_that_differ_have_a_wide_interval() -> None:
    alike = between({f"site-{i}": site(i, 1.5) for i in range(5)})
    apart = between({f"site-{i}": site(i, s) for i, s in enumerate((0.1, 0.8, 1.5, 2.5, 4.0))})
    assert [(one.figure, one.label) for one in alike] == [(f, c) for c in range(3) for f in ("sensitivity", "auroc")]
    for same, other in zip(alike, apart, strict=True):
        assert same.sites == other.sites == 5
        assert same.low < same.mean < same.high
        assert other.deviation > same.deviation
        assert other.high - other.low > same.high - same.low


def test_the_auroc_of_a_typical_hospital_is_near_those_of_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    aurocs = []
    for seed in range(6):
        generator, labels = np.random.default_rng(seed), np.repeat([0, 1, 2], 50)
        logits = generator.normal(size=(150, 3)) + 1.5 * np.eye(3)[labels]
        odds = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        aurocs.append(roc_auc_score(labels == 0, odds[:, 0]))
    found = next(one for one in between({f"s{i}": site(i, 1.5) for i in range(6)}) if one.figure == "auroc")
    assert found.mean == pytest.approx(float(np.mean(aurocs)), abs=0.01)


def test_two_hospitals_tell_no_variance() -> None:
    assert between({f"s{i}": site(i, 1.5) for i in range(FEWEST - 1)}) == ()
    closed = Scores(0.5, 0.5, 10)
    assert between({f"s{i}": closed for i in range(9)}) == ()


def test_a_part_is_compared_over_the_classes_that_it_has() -> None:
    whole = scores(np.array([[8, 2, 0], [0, 10, 0], [5, 0, 5]]))
    part = scores(np.array([[1, 1, 0], [0, 0, 0], [1, 0, 3]]))
    assert apart_from(part, whole) == pytest.approx(((0.5 - 0.8) + (0.75 - 0.5)) / 2)
    assert apart_from(Scores(0.5, 0.5, 10), whole) is None
