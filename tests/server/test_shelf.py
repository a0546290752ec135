"""Values beyond a bound lie in a file, and are the same when they come back."""

from dataclasses import dataclass

import numpy as np
import pytest

from fedmr_med.server.shelf import Shelf


@dataclass(frozen=True)
class Value:
    """Arrays of a reply: large, odd in size, without values, of one number, and not in one piece."""

    number: int
    arrays: dict[str, np.ndarray]

    @classmethod
    def numbered(cls, number: int) -> "Value":
        random = np.random.default_rng(number)
        large = random.standard_normal((50, 40)).astype(np.float32)
        odd, none = random.standard_normal(7).astype(np.float16), np.zeros((0, 3))
        return cls(
            number, {"large": large, "odd": odd, "none": none, "count": np.asarray(number), "part": large[:, ::2]}
        )


def filled(memory: int) -> Shelf[Value]:
    shelf: Shelf[Value] = Shelf(memory)
    for number in (3, 1, 4, 0, 2):
        shelf.add(f"site-{number}", Value.numbered(number))
    return shelf


@pytest.mark.parametrize("memory", [0, 40_000, 2**30], ids=["in the file", "in both", "in memory"])
def test_values_come_back_equal_and_by_name(memory: int) -> None:
    shelf = filled(memory)
    assert list(shelf) == [f"site-{number}" for number in range(5)]
    assert len(shelf) == 5
    for number, value in enumerate(shelf.values()):
        assert value.number == number
        for name, array in Value.numbered(number).arrays.items():
            np.testing.assert_array_equal(value.arrays[name], array, strict=True)
            assert value.arrays[name].flags.aligned


def test_only_so_many_bytes_stay_in_memory() -> None:
    first = Value.numbered(3)
    shelf: Shelf[Value] = Shelf(20_000)
    for name, value in {"fits": first, "too much": Value.numbered(1), "small": Value(5, {})}.items():
        shelf.add(name, value)
    assert shelf["fits"] is first
    assert shelf["too much"] is not shelf["too much"]
    assert shelf["small"] is shelf["small"]


def test_by_default_a_few_models_stay_in_memory() -> None:
    shelf: Shelf[Value] = Shelf()
    model = Value(0, {"weights": np.zeros(16 * 2**20, np.uint8)})
    shelf.add("first", model)
    assert shelf["first"] is model


@pytest.mark.parametrize("memory", [0, 2**30], ids=["in the file", "in memory"])
def test_a_name_is_taken_until_its_value_is_removed(memory: int) -> None:
    shelf = filled(memory)
    with pytest.raises(KeyError):
        shelf.add("site-4", Value.numbered(7))
    shelf.remove("site-4")
    assert "site-4" not in shelf
    with pytest.raises(KeyError):
        shelf["site-4"]
    shelf.add("site-4", Value.numbered(7))
    assert [value.number for value in shelf.values()] == [0, 1, 2, 3, 7]


def test_what_is_done_to_a_value_does_not_reach_the_file() -> None:
    shelf = filled(0)
    shelf["site-1"].arrays["large"][:] = 0
    assert shelf["site-1"].arrays["large"].any()
