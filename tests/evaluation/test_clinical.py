"""Clinical figures from histograms: the exact ones of scikit-learn, nearly, and additive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from fedmr_med.evaluation import clinical
from fedmr_med.evaluation.clinical import BINS, EDGES, TEMPERATURES, ScoreHistograms, softmax
from tests.helpers.outputs import outputs


def test_there_are_as_many_bins_as_said() -> None:
    assert len(EDGES) == BINS + 1
    assert (np.diff(EDGES) > 0).all()
    assert clinical.bins_of(np.array([0.0, 1.0, 1e-300])).tolist() == [0, BINS - 1, 0]


@pytest.mark.parametrize("classes", [2, 8])
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0, 10.0])
def test_auroc_is_scikit_learns_within_two_thousandths(sharpness: float, classes: int) -> None:
    """From a network that hardly dares to one whose probabilities are nearly all 0 or 1."""
    errors = []
    for seed in range(6):
        logits, labels = outputs(seed, count=2500, classes=classes, sharpness=sharpness)
        found = ScoreHistograms.of(logits, labels)
        ranked = clinical.ranking(found.positives, found.negatives)
        exact = [roc_auc_score(labels == c, softmax(logits)[:, c]) for c in range(classes)]
        errors += np.abs(ranked.auroc - exact).tolist()
    assert max(errors) <= 0.002


def test_average_precision_and_brier_are_scikit_learns() -> None:
    logits, labels = outputs(1, count=2000)
    found, probabilities = ScoreHistograms.of(logits, labels), softmax(logits)
    ranked = clinical.ranking(found.positives, found.negatives)
    exact = [average_precision_score(labels == c, probabilities[:, c]) for c in range(4)]
    assert np.abs(ranked.average_precision - exact).max() <= 0.01
    parts = sum(brier_score_loss(labels == c, probabilities[:, c]) for c in range(4))
    assert found.brier[0] / 2000 == pytest.approx(parts)


def test_the_error_of_auroc_is_delongs() -> None:
    """Against the formula with every pair of images, on scores rounded to the bins."""
    logits, labels = outputs(2, count=120)
    found, bins = ScoreHistograms.of(logits, labels), clinical.bins_of(softmax(logits))
    ranked = clinical.ranking(found.positives, found.negatives)
    for c in range(4):
        own, others = bins[labels == c, c], bins[labels != c, c]
        wins = (own[:, None] > others) + 0.5 * (own[:, None] == others)
        variance = wins.mean(1).var(ddof=1) / len(own) + wins.mean(0).var(ddof=1) / len(others)
        assert ranked.auroc[c] == pytest.approx(wins.mean())
        assert ranked.auroc_error[c] == pytest.approx(np.sqrt(variance))


def test_the_interval_holds_the_true_value_as_often_as_it_says() -> None:
    truth_logits, truth_labels = outputs(3, count=200_000, classes=2)
    truth = roc_auc_score(truth_labels == 1, softmax(truth_logits)[:, 1])
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        drawn = generator.choice(len(truth_labels), 200)
        found = ScoreHistograms.of(truth_logits[drawn], truth_labels[drawn])
        ranked = clinical.ranking(found.positives, found.negatives)
        low, high = clinical.normal_interval(float(ranked.auroc[1]), float(ranked.auroc_error[1]))
        hits += low <= truth <= high
    assert 0.91 <= hits / 300 <= 0.99


@given(st.integers(0, 10**6), st.integers(1, 80), st.integers(1, 80))
def test_histograms_of_sites_add_up_to_those_of_pooled_data(seed: int, first: int, second: int) -> None:
    logits, labels = outputs(seed, count=first + second)
    both = ScoreHistograms.of(logits[:first], labels[:first]) + ScoreHistograms.of(logits[first:], labels[first:])
    pooled = ScoreHistograms.of(logits, labels)
    for name, array in vars(pooled).items():
        np.testing.assert_allclose(getattr(both, name), array, err_msg=name)
    assert pooled.samples == first + second


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(1, 30))
def test_no_cell_is_smaller_than_asked_and_totals_stay(seed: int, count: int, least: int) -> None:
    logits, labels = outputs(seed, count=count)
    full = ScoreHistograms.of(logits, labels)
    coarse = full.coarsened(least)
    for name in ("positives", "negatives", "right", "wrong"):
        cells, exact = getattr(coarse, name), getattr(full, name)
        assert ((cells == 0) | (cells >= least)).all()
        totals = exact.sum(-1)
        if name in ("positives", "negatives"):
            assert np.array_equal(cells.sum(-1), np.where(totals >= least, totals, 0))
    assert coarse.right.sum() + coarse.wrong.sum() in (0, count)
    again = coarse.coarsened(least)
    assert all(np.array_equal(getattr(again, name), array) for name, array in vars(coarse).items())


def test_the_price_of_cells_of_eleven() -> None:
    """Single classes of a small site pay for the rule, where their interval is wide anyway; a pool hardly does."""
    for count, mean, most in ((600, 0.015, 0.12), (2500, 0.002, 0.01)):
        errors = []
        for seed in range(6):
            logits, labels = outputs(seed, count=count, classes=8)
            found = ScoreHistograms.of(logits, labels).coarsened(11)
            ranked = clinical.ranking(found.positives, found.negatives)
            for c in np.flatnonzero(found.positives.sum(1)):
                exact = roc_auc_score(labels == c, softmax(logits)[:, c])
                size = int((labels == c).sum()), int((labels != c).sum())
                errors.append(abs(ranked.auroc[c] - exact))
                assert errors[-1] <= clinical.Z95 * clinical.hanley_mcneil(float(ranked.auroc[c]), *size)
        assert np.mean(errors) <= mean
        assert max(errors) <= most


def test_a_perfect_auroc_of_few_images_is_not_certain() -> None:
    error = clinical.hanley_mcneil(1.0, 12, 200)
    assert clinical.normal_interval(1.0, error)[0] < 0.95
    assert clinical.hanley_mcneil(1.0, 1200, 2000) < error / 10


@pytest.mark.parametrize("truth", [0.5, 1.0, 2.5])
def test_the_temperature_that_was_put_in_is_found(truth: float) -> None:
    generator = np.random.default_rng(0)
    honest = generator.normal(size=(20_000, 3)) * 2
    labels = np.array([generator.choice(3, p=p) for p in softmax(honest)])
    found = ScoreHistograms.of(honest * truth, labels)
    assert clinical.best_temperature(found.nll) == pytest.approx(truth, rel=0.05)
    one = int(np.abs(TEMPERATURES - 1).argmin())
    assert TEMPERATURES[one] == pytest.approx(1)
    calibrated = ScoreHistograms.of(honest, labels)
    assert clinical.reliability(calibrated.right, calibrated.wrong).error < 0.02


def test_a_perfect_class_and_an_absent_one() -> None:
    logits = 20 * np.eye(3)[np.array([0, 0, 1, 1])]
    found = ScoreHistograms.of(logits, np.array([0, 0, 1, 1]))
    ranked = clinical.ranking(found.positives, found.negatives)
    assert ranked.auroc[:2].tolist() == [1, 1]
    assert ranked.average_precision[:2].tolist() == [1, 1]
    assert np.isnan(ranked.auroc[2])
    assert clinical.best_thresholds(ranked)[2] == -1
    chosen = clinical.best_thresholds(ranked)[0]
    assert ranked.sensitivity[0, chosen] == ranked.specificity[0, chosen] == 1


@given(st.integers(0, 50), st.integers(1, 50))
def test_intervals_hold_the_figure(successes: int, more: int) -> None:
    trials = successes + more
    for low, high in (clinical.wilson(successes, trials), clinical.logit_interval(successes / trials, trials)):
        assert 0 <= low <= successes / trials + 1e-12
        assert successes / trials - 1e-12 <= high <= 1
