"""Differences between methods, seed by seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from fedmr_med.evaluation.results import RoundResult, RunResult
from fedmr_med.lab.bench.paired import differences, half_width


def run(label: str, seed: int, accuracies: list[float], head: float | None = None) -> RunResult:
    rounds = tuple(
        RoundResult(round=i, accuracy=a, balanced_accuracy=a, seconds=1, bytes_up=3_000_000, bytes_down=1_000_000)
        for i, a in enumerate(accuracies, 1)
    )
    about = {"dataset": "fmnist", "split": "P5C2", "method": "fedavg", "seed": seed, "label": label, "rounds": rounds}
    best = max(accuracies, default=None)
    return RunResult(**about, best_balanced_accuracy=best, head_balanced_accuracy=head)


def test_differences_are_taken_within_a_seed() -> None:
    runs = [run("a", 0, [0.5]), run("a", 1, [0.7]), run("b", 1, [0.8]), run("b", 0, [0.7])]
    (found,) = differences(runs, "a")
    assert (found.label, found.seeds) == ("b", 2)
    assert found.last5 is not None
    assert found.last5.mean == pytest.approx((0.2 + 0.1) / 2)
    assert found.last5.half_width == pytest.approx(half_width([0.2, 0.1]))


def test_seeds_that_only_one_of_the_two_has_do_not_count() -> None:
    (found,) = differences([run("a", 0, [0.5]), run("b", 0, [0.6]), run("b", 7, [0.9])], "a")
    assert found.seeds == 1
    assert found.last5 is not None
    assert found.last5.mean == pytest.approx(0.1)
    assert found.last5.half_width is None


def test_a_method_that_reaches_the_best_of_the_reference_says_after_how_many_rounds_and_bytes() -> None:
    (found,) = differences([run("a", 0, [0.5, 0.6, 0.55]), run("b", 0, [0.4, 0.61, 0.9])], "a")
    assert found.rounds == 2
    assert found.megabytes == pytest.approx(8.0)


def test_a_method_that_misses_it_with_one_seed_has_no_such_figure() -> None:
    runs = [run("a", 0, [0.6]), run("a", 1, [0.6]), run("b", 0, [0.7]), run("b", 1, [0.5])]
    (found,) = differences(runs, "a")
    assert found.rounds is None
    assert found.megabytes is None


def test_heads_are_compared_where_both_have_one() -> None:
    (found,) = differences([run("a", 0, [0.5], head=0.7), run("b", 0, [0.6], head=0.75)], "a")
    assert found.head is not None
    assert found.head.mean == pytest.approx(0.05)
    (found,) = differences([run("a", 0, [0.5]), run("b", 0, [0.6], head=0.75)], "a")
    assert found.head is None


def test_runs_without_rounds_are_compared_by_their_heads() -> None:
    (found,) = differences([run("a", 0, [], head=0.5), run("b", 0, [], head=0.6)], "a")
    assert found.last5 is None
    assert found.head is not None
    assert found.head.mean == pytest.approx(0.1)


def test_differences_are_in_balanced_accuracy() -> None:
    runs = [run("a", 0, [0.5]), run("b", 0, [0.6])]
    skewed = [r.model_copy(update={"rounds": (r.rounds[0].model_copy(update={"accuracy": 0.9}),)}) for r in runs]
    (found,) = differences(skewed, "a")
    assert found.last5 is not None
    assert found.last5.mean == pytest.approx(0.1)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=9).filter(lambda values: max(values) - min(values) > 1e-3))
def test_the_interval_is_that_of_a_paired_t_test(values: list[float]) -> None:
    low, high = ttest_1samp(values, 0).confidence_interval(0.95)
    assert half_width(values) == pytest.approx((high - low) / 2)
