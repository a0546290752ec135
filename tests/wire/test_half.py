"""float16 on the wire: small errors whatever the size of the values, and exactly repeatable."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedmr_med.wire.half import MAX_EXPONENT, pack, unpack

FLOATS = npst.arrays(np.float32, st.integers(0, 20), elements=st.floats(-1, 1, width=32))


@settings(deadline=None, max_examples=60)
@given(FLOATS, st.integers(-100, 100))
def test_the_error_is_a_thousandth_at_any_scale(array: np.ndarray, exponent: int) -> None:
    array = np.ldexp(array, exponent)
    packed, exponents = pack({"w": array}, ["w"])
    assert packed["w"].dtype == np.float16
    back = unpack(packed, exponents)["w"]
    assert back.dtype == np.float32
    norm, error = (np.linalg.norm(x.astype(np.float64)) for x in (array, back - array))
    assert error <= 1e-3 * norm + 1e-37  # what float32 itself cannot hold


@settings(deadline=None, max_examples=60)
@given(FLOATS)
def test_packing_again_gives_the_same_bits(array: np.ndarray) -> None:
    packed, exponents = pack({"w": array}, ["w"])
    again, same = pack(unpack(packed, exponents), ["w"])
    assert same == exponents
    assert np.array_equal(again["w"], packed["w"])


def test_a_value_that_rounds_up_to_a_power_of_two_packs_the_same_again() -> None:
    array = np.array([np.nextafter(np.float32(2), np.float32(0)), 1e-3], dtype=np.float32)
    packed, exponents = pack({"w": array}, ["w"])
    assert pack(unpack(packed, exponents), ["w"])[1] == exponents


def test_other_arrays_and_shapes_stay() -> None:
    arrays = {"w": np.float32(3) * np.ones((), np.float32), "running_var": np.ones(2, np.float32), "n": np.array(7)}
    packed, exponents = pack(arrays, ["w"])
    back = unpack(packed, exponents)
    assert packed["running_var"] is arrays["running_var"]
    assert all(back[name].dtype == array.dtype and np.array_equal(back[name], array) for name, array in arrays.items())
    assert back["w"].shape == ()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    back = unpack(*pack({"w": np.array([1, bad], dtype=np.float32)}, ["w"]))["w"]
    assert not np.isfinite(back).all()


@pytest.mark.parametrize(
    "exponents", [{}, {"w": 0, "v": 0}, {"w": 0.5}, {"w": True}, {"w": 201}, {"w": -201}, {"w": None}]
)
def test_wrong_exponents_are_refused(exponents: dict) -> None:
    with pytest.raises(ValueError, match=r"w|v"):
        unpack({"w": np.ones(2, np.float16), "v": np.ones(2, np.float32)}, exponents)


@pytest.mark.parametrize("exponent", [-MAX_EXPONENT, MAX_EXPONENT])
def test_the_largest_exponents_are_read(exponent: int) -> None:
    assert unpack({"w": np.zeros(2, np.float16)}, {"w": exponent})["w"].dtype == np.float32
