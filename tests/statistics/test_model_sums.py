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
from fedmr_med.statistics.model_sums import ModelSums, Sums, sum_fields, vectors
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


SHAPES = st.lists(st.sampled_from([(), (1,), (3, 2), (100, 81), (8192,), (0,)]), max_size=6)


@given(SHAPES, st.lists(st.floats(0.1, 1e4), min_size=1, max_size=5), st.randoms())
def test_the_mean_is_that_of_a_loop_in_float64(shapes, weights: list[float], random) -> None:
    generator = np.random.default_rng(random.getrandbits(32))
    names = [f"array {number}" for number in range(len(shapes))]
    replies = [
        {name: generator.normal(size=shape).astype(np.float32) for name, shape in zip(names, shapes, strict=True)}
        for _ in weights
    ]
    sums = Sums()
    for reply, weight in zip(replies, weights, strict=True):
        order = generator.permutation(names)  # a site may name its arrays in any order
        sums.add("group", {name: reply[name] for name in order}, weight)
    means = sums.mean("group", sum(weights))
    assert set(means) == set(names)
    for name, shape in zip(names, shapes, strict=True):
        expected = sum(weight * reply[name].astype(np.float64) for reply, weight in zip(replies, weights, strict=True))
        assert means[name].shape == shape
        np.testing.assert_allclose(means[name], expected / sum(weights), rtol=1e-5, atol=1e-6)


def test_a_mean_of_a_hundred_is_exact_to_a_millionth() -> None:
    generator = np.random.default_rng(0)
    arrays = generator.normal(1.0, 0.1, size=(100, 20_000)).astype(np.float32)
    sums, weights = Sums(), generator.integers(1, 20_000, size=100)
    for array, weight in zip(arrays, weights, strict=True):
        sums.add("group", {"w": array}, int(weight))
    expected = np.average(arrays.astype(np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(sums.mean("group", int(weights.sum()))["w"], expected, rtol=1e-6)


def test_small_arrays_make_one_vector_and_large_ones_are_not_copied() -> None:
    large = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    found = vectors([np.float32([1, 2]), large, np.asarray(np.float32(3))])
    assert [len(vector) for vector in found] == [10_000, 3]
    assert np.shares_memory(found[0], large)
    assert found[1].tolist() == [1, 2, 3]


def test_a_reply_that_lacks_an_array_is_an_error() -> None:
    sums = Sums()
    sums.add("group", {"w": np.float32([1])}, 1)
    with pytest.raises(KeyError, match="w"):
        sums.add("group", {}, 1)


@given(st.integers(1, 100_000))
def test_one_reply_comes_back_bit_for_bit(weight: int) -> None:
    array = np.random.default_rng(weight).normal(size=1000).astype(np.float32)
    sums = Sums()
    sums.add("group", {"w": array}, weight)
    assert np.array_equal(sums.mean("group", weight)["w"], array)


def test_together_or_one_after_the_other_is_the_same_bit_for_bit() -> None:
    generator = np.random.default_rng(0)
    replies = [{"w": generator.normal(size=(100, 90)).astype(np.float32), "b": np.float32([n])} for n in range(7)]
    together, one_by_one = Sums(), Sums()
    for number, reply in enumerate(replies, start=1):
        for sums in (together, one_by_one):
            sums.add("group", reply, number)
        one_by_one.flush()
    first, second = together.mean("group", 28), one_by_one.mean("group", 28)
    assert all(np.array_equal(first[name], second[name]) for name in first)
