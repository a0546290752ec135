"""Sums of single replies add up to the sums of all of them, buffers and payloads included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med import methods
from fedmr_med.arrays import Arrays
from fedmr_med.config import MethodConfig
from fedmr_med.methods.base import Contribution, ServerHalf
from fedmr_med.statistics.fields import Layout
from fedmr_med.statistics.model_sums import ModelSums, sum_fields
from tests.helpers.errors import raises

PARAMETERS = frozenset({"weight", "bias"})


def model(seed: int) -> Arrays:
    draw = np.random.default_rng(seed)
    return {
        "weight": draw.normal(size=(3, 4)).astype(np.float32),
        "bias": draw.normal(size=3).astype(np.float32),
        "running_var": draw.uniform(1, 2, 3).astype(np.float32),
        "num_batches_tracked": np.asarray(draw.integers(5, 9)),
    }


def server(method: str) -> ServerHalf:
    return methods.build(MethodConfig(name=method)).server()


def replies(numbers: list[int], method: str) -> list[Contribution]:
    payload = {"effective_steps": np.asarray(3.5, np.float32)} if method == "fednova" else {}
    return [Contribution(f"site-{i}", n, model(i + 1), payload) for i, n in enumerate(numbers)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 10_000), min_size=3, max_size=6), st.sampled_from(["fedavg", "fednova"]))
def test_a_total_of_single_sums_gives_the_model_of_all_replies(numbers: list[int], method: str) -> None:
    start, contributions = model(0), replies(numbers, method)
    plain = ModelSums(server(method), start, PARAMETERS)
    plain.add(*contributions)
    layout = Layout(sum_fields(server(method), start, PARAMETERS))
    total = np.zeros(layout.size, np.uint64)
    for contribution in contributions:
        single = ModelSums(server(method), start, PARAMETERS)
        single.add(contribution)
        total += layout.pack(single.values())
    summed = ModelSums(server(method), start, PARAMETERS)
    summed.take(layout.unpack(total), sites=len(numbers), most_images=10_000)
    for expected, found in zip(plain.finish({}, 6), summed.finish({}, 6), strict=True):
        assert expected.keys() == found.keys()
        for name in expected.keys() - {"num_batches_tracked"}:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)


def test_counters_of_a_total_have_their_mean() -> None:
    sums = ModelSums(server("fedavg"), model(0), PARAMETERS)
    sums.add(*replies([10, 20, 30], "fedavg"))
    counters = [int(model(i)["num_batches_tracked"]) for i in (1, 2, 3)]
    total = sums.values() | {"counters/num_batches_tracked": np.asarray(sum(counters))}
    summed = ModelSums(server("fedavg"), model(0), PARAMETERS)
    summed.take(total, sites=3, most_images=100)
    assert summed.finish({}, 3)[2]["num_batches_tracked"] == round(sum(counters) / 3)


@pytest.mark.parametrize("changes", [{"numbers/sites": 4.0}, {"numbers/images": 2.0}, {"numbers/images": 1e9}])
def test_a_total_that_no_replies_give_is_refused(changes: dict[str, float]) -> None:
    sums = ModelSums(server("fedavg"), model(0), PARAMETERS)
    sums.add(*replies([10, 20, 30], "fedavg"))
    total = sums.values() | {name: np.asarray(value) for name, value in changes.items()}
    with raises("wire.counts"):
        ModelSums(server("fedavg"), model(0), PARAMETERS).take(total, sites=3, most_images=1000)
