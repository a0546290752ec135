"""The measuring core: turns are fair, figures say what they are."""

import time

import pytest

from fedmr_med.lab.perf.measure import Figure, interleaved, quartiles, ratios, round_to


def test_candidates_take_turns_and_each_goes_first() -> None:
    calls: list[str] = []
    names = ["a", "b", "c"]
    seconds = interleaved({name: lambda name=name: calls.append(name) for name in names}, 3, warm_up=0)
    turns = [calls[start : start + 3] for start in (0, 3, 6)]
    assert all(sorted(turn) == names for turn in turns)
    assert [turn[0] for turn in turns] == names
    assert all(len(values) == 3 for values in seconds.values())


def test_the_warm_up_does_not_count() -> None:
    calls: list[int] = []
    seconds = interleaved({"a": lambda: calls.append(1)}, 2, warm_up=3)
    assert len(calls) == 5
    assert len(seconds["a"]) == 2


def test_what_takes_longer_has_the_larger_ratio() -> None:
    seconds = interleaved(
        {"long": lambda: time.sleep(0.02), "short": lambda: time.sleep(0.001)}, 3, clock=time.perf_counter
    )
    assert min(ratios(seconds, "long", "short")) > 1


def test_a_figure_is_the_median_with_its_quartiles() -> None:
    figure = Figure.of("step_ratio", "fedmr", "small", "a / b", [5.0, 1.0, 2.0, 3.0, 4.0])
    assert (figure.low, figure.value, figure.high, figure.repetitions) == (2, 3, 4, 5)
    assert figure.as_dict()["compared"] == "a / b"
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize(("value", "rounded"), [(1.23456, 1.235), (123456.0, 123500.0), (0.0, 0.0)])
def test_rounding_keeps_four_digits(value: float, rounded: float) -> None:
    assert round_to(value) == rounded
