"""Two models on the same images: McNemar's test and the difference of their balanced accuracies, against scipy."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score

from fedmr_med.evaluation.pairs import PairRecord, Pairs, mcnemar


@pytest.mark.parametrize(("first", "second"), [(0, 1), (5, 5), (3, 17), (40, 12), (400, 450), (0, 30)])
def test_mcnemars_p_is_that_of_the_binomial_test(first: int, second: int) -> None:
    expected = stats.binomtest(first, first + second, 0.5).pvalue
    assert mcnemar(first, second) == pytest.approx(expected, abs=1e-4)
    assert mcnemar(second, first) == mcnemar(first, second)


def test_of_many_images_it_is_the_corrected_chi_square() -> None:
    for first, second in ((900, 800), (5000, 5100)):
        chi = (abs(first - second) - 1) ** 2 / (first + second)
        assert mcnemar(first, second) == pytest.approx(stats.chi2.sf(chi, 1), abs=1e-4)
    assert mcnemar(0, 0) is None


def drawn(seed: int, patients: int, each: int = 1, better: float = 0.0) -> tuple[np.ndarray, ...]:
    """Answers of two models on images of patients, whose images go together, and the patient of each."""
    generator = np.random.default_rng(seed)
    units = np.repeat(np.arange(patients), each)
    labels = (units % 3).astype(np.int64)
    easy = generator.uniform(0.2, 0.8, (2, patients)).repeat(each, axis=1)
    right = generator.uniform(size=(2, len(units))) < easy + np.array([[better], [0.0]])
    wrong = (labels + 1) % 3
    first, second = (np.where(known, labels, wrong) for known in right)
    return first, second, labels, units


def test_tables_add_up_to_those_of_the_pooled_images() -> None:
    parts = [drawn(seed, 80) for seed in range(4)]
    whole = tuple(np.concatenate([part[index] for part in parts]) for index in range(3))
    total = Pairs.of(*parts[0][:3], 3)
    for part in parts[1:]:
        total += Pairs.of(*part[:3], 3)
    assert np.array_equal(total.cells, Pairs.of(*whole, 3).cells)
    record = PairRecord.of(total, ("a", "b", "c", "d"))
    difference = balanced_accuracy_score(whole[2], whole[0]) - balanced_accuracy_score(whole[2], whole[1])
    assert record.difference.value == pytest.approx(difference, abs=1e-4)
    for label, one in enumerate(record.classes):
        own = whole[2] == label
        right = [said[own] == label for said in whole[:2]]
        assert (one.first, one.second) == ((right[0] & ~right[1]).sum(), (right[1] & ~right[0]).sum())


def bootstrapped(first: np.ndarray, second: np.ndarray, labels: np.ndarray, units: np.ndarray) -> float:
    """Return the standard error of the difference over patients drawn anew."""
    generator, values = np.random.default_rng(0), []
    means = {u: np.flatnonzero(units == u) for u in np.unique(units)}
    for _ in range(400):
        rows = np.concatenate([means[u] for u in generator.choice(list(means), len(means))])
        gained = (first[rows] == labels[rows]).astype(float) - (second[rows] == labels[rows])
        values.append(np.mean([gained[labels[rows] == label].mean() for label in range(3)]))
    return float(np.std(values))


@pytest.mark.parametrize("each", [1, 6])
def test_the_interval_is_as_wide_as_a_bootstrap_of_patients_says(each: int) -> None:
    first, second, labels, units = drawn(1, 150, each)
    found = PairRecord.of(Pairs.of(first, second, labels, 3, units), ("a",)).difference
    assert (found.high - found.low) / 2 / 1.96 == pytest.approx(bootstrapped(first, second, labels, units), rel=0.2)
    blind = PairRecord.of(Pairs.of(first, second, labels, 3), ("a",))
    assert blind.effect == 1.0


@pytest.mark.parametrize("each", [1, 5])
def test_models_that_are_alike_differ_in_about_5_of_100_tests(each: int) -> None:
    called, held = 0, 0
    for seed in range(300):
        record = PairRecord.of(Pairs.of(*drawn(seed, 120, each)[:3], 3, drawn(seed, 120, each)[3]), ("a",))
        called += record.p < 0.05
        held += record.difference.low <= 0 <= (record.difference.high or 0)
    assert 0.01 <= called / 300 <= 0.10
    assert abs(called + held - 300) <= 3, "the interval and the p say the same"


def test_a_better_model_is_found() -> None:
    record = PairRecord.of(Pairs.of(*drawn(0, 600, better=0.2)[:3], 3), ("a",))
    assert record.difference.low > 0
    assert record.p < 0.001 and record.whole


def test_a_class_that_is_held_back_counts_nowhere() -> None:
    pairs = Pairs.of(*drawn(0, 90)[:3], 3)
    cells = pairs.cells.copy()
    cells[1] = 0
    record = PairRecord.of(Pairs(cells, np.zeros(()), np.zeros(())), ("a",), ("b",))
    assert not record.whole and record.classes[1].images == 0 and record.classes[1].p is None
    nothing = PairRecord.of(Pairs(np.zeros((3, 4), np.int64), np.zeros(()), np.zeros(())), ())
    assert nothing.difference is None and nothing.p is None
