"""Clinical figures from histograms: the exact ones of scikit-learn, nearly, and additive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from fedmr_med.evaluation import clinical
from fedmr_med.evaluation.clinical import BINS, EDGES, TEMPERATURES, ScoreHistograms, softmax
from fedmr_med.evaluation.spreading import spread
from tests.helpers.outputs import outputs
from tests.helpers.pooled_auroc import SITUATIONS, SIZES, errors


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
def test_totals_stay_small_rows_do_not_and_what_may_leave_stays_as_it_is(seed: int, count: int, least: int) -> None:
    logits, labels = outputs(seed, count=count, sharpness=float(1 + seed % 9))
    full = ScoreHistograms.of(logits, labels)
    left = full.spread(least)
    for name in ("positives", "negatives"):
        totals = getattr(full, name).sum(-1)
        assert np.array_equal(getattr(left, name).sum(-1), np.where(totals >= least, totals, 0))
    assert left.right.sum() + left.wrong.sum() in (0, count)
    again = left.spread(least)
    assert all(np.array_equal(getattr(again, name), array) for name, array in vars(left).items())


def test_twelve_images_leave_as_their_mean_and_their_spread() -> None:
    """2 x 50^2 = 2 x 30^2 + 2 x 40^2: other scores with the same two figures give the same row."""
    rows = []
    for away in ([50], [30, 40]):
        row = np.zeros(BINS, np.int64)
        row[[100 + sign * distance for distance in away for sign in (1, -1)]] = 1
        row[100] = 12 - row.sum()
        rows.append(spread(row, np.zeros_like(row), 11))
    assert np.array_equal(*rows)
    assert rows[0].max() == 1


@pytest.mark.parametrize(("sharpness", "apart"), SITUATIONS.values(), ids=SITUATIONS)
def test_pooled_auroc_is_not_biased_by_the_groups(sharpness: float, apart: float) -> None:
    """From 11 to 200 positives a hospital: .04 to .07 too high before, where groups were joined at their means."""
    runs = [errors(seed, sharpness=sharpness, apart=apart) for seed in range(4)]
    missed, inside, _ = (np.array(part) for part in zip(*runs, strict=True))
    assert np.abs(missed.mean(0)).max() <= 0.0125
    assert np.abs(missed.mean(0)[SIZES.index(15) :]).max() <= 0.01
    assert inside.mean() >= 0.97, "the interval holds the exact figure of these images"


def test_small_classes_of_one_hospital_are_within_their_interval() -> None:
    for count, mean, most in ((600, 0.005, 0.05), (2500, 0.002, 0.01)):
        differences = []
        for seed in range(3):
            logits, labels = outputs(seed, count=count, classes=8)
            found = ScoreHistograms.of(logits, labels).spread(11)
            ranked = clinical.ranking(found.positives, found.negatives)
            for c in np.flatnonzero(found.positives.sum(1)):
                exact = roc_auc_score(labels == c, softmax(logits)[:, c])
                size = int((labels == c).sum()), int((labels != c).sum())
                differences.append(abs(ranked.auroc[c] - exact))
                assert differences[-1] <= clinical.Z95 * clinical.hanley_mcneil(float(ranked.auroc[c]), *size)
        assert np.mean(differences) <= mean
        assert max(differences) <= most


def test_sums_of_the_likelihood_do_not_give_single_scores_away() -> None:
    """Least squares from a guess that is .2 off: on six images of two classes, from 31 sums before and six now."""

    def missed(seed: int, temperatures: np.ndarray, decimals: int) -> float:
        generator = np.random.default_rng(seed)
        margins = np.sort(generator.normal(1, 2, 6))
        guess = margins + generator.normal(0, 0.3, 6)

        def sums(values: np.ndarray) -> np.ndarray:
            return np.asarray(np.logaddexp(0, -values[:, None] / temperatures).sum(0))

        told = sums(margins).round(decimals)
        solved = least_squares(lambda values: sums(values) - told, guess, xtol=1e-15, ftol=1e-15, gtol=1e-15).x
        return float(np.abs(np.sort(solved) - margins).mean())

    before = [missed(seed, np.geomspace(0.25, 8, 31), 15) for seed in range(5)]
    now = [missed(seed, TEMPERATURES, 1) for seed in range(5)]
    assert np.median(before) < 0.001
    assert min(now) > 0.1, "no nearer than the guess"
    logits, labels = outputs(0, count=50, classes=2)
    left = ScoreHistograms.of(logits, labels).spread(11)
    assert np.array_equal(left.nll, left.nll.round(1))
    assert np.array_equal(left.brier, left.brier.round(1))


def test_a_perfect_auroc_of_few_images_is_not_certain() -> None:
    error = clinical.hanley_mcneil(1.0, 12, 200)
    assert clinical.normal_interval(1.0, error)[0] < 0.95
    assert clinical.hanley_mcneil(1.0, 1200, 2000) < error / 10


@pytest.mark.parametrize("truth", [0.3, 0.5, 1.0, 2.5, 5.0])
def test_the_temperature_that_was_put_in_is_found(truth: float) -> None:
    generator = np.random.default_rng(0)
    honest = generator.normal(size=(20_000, 3)) * 2
    labels = np.array([generator.choice(3, p=p) for p in softmax(honest)])
    found = ScoreHistograms.of(honest * truth, labels)
    temperature, loss = clinical.best_temperature(found.nll)
    assert temperature == pytest.approx(truth, rel=0.05)
    exact = ScoreHistograms.of(honest, labels).nll[TEMPERATURES == 1.0].item()
    assert loss == pytest.approx(exact, rel=0.01)
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
