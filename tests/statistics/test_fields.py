"""Statistics as integers: sums are exact, rounding is bounded, and what cannot be held is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmr_med.secure.messages import MOST_SITES
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.fields import BITS, LIMIT, Field, Layout
from fedmr_med.statistics.moments import KEPT, MOMENTS
from tests.helpers.errors import raises

LAYOUT = Layout({"counts": Field((3,)), "sums": Field((3, 2), BITS)})
REAL = st.floats(-1e6, 1e6)


@given(arrays(np.float64, (5, 3, 2), elements=REAL), arrays(np.int64, (5, 3), elements=st.integers(0, 10**7)))
def test_a_total_is_the_total_of_the_rounded_values(sums: np.ndarray, counts: np.ndarray) -> None:
    packed = [LAYOUT.pack({"sums": sums[i], "counts": counts[i]}) for i in range(5)]
    total = LAYOUT.unpack(np.sum(packed, axis=0, dtype=np.uint64))
    assert (total["counts"] == counts.sum(0)).all()
    assert (total["sums"] == (np.rint(sums * 2**BITS).sum(0) / 2**BITS)).all()
    assert np.abs(total["sums"] - sums.sum(0)).max() <= 5 * 2.0 ** -(BITS + 1) + 1e-8


def test_what_is_not_shared_is_zero_and_takes_the_same_room() -> None:
    assert LAYOUT.size == 9
    assert LAYOUT.pack({}).tolist() == [0] * 9


def test_the_largest_values_of_the_most_sites_do_not_overflow() -> None:
    field = Layout({"sums": Field((2,), BITS)})
    largest = (LIMIT - 1) / 2**BITS
    packed = field.pack({"sums": np.array([largest, -largest])})
    total = field.unpack(np.uint64(MOST_SITES) * packed)["sums"]
    assert total.tolist() == pytest.approx([MOST_SITES * largest, -MOST_SITES * largest])


@pytest.mark.parametrize("bad", [math.nan, math.inf, LIMIT / 2**BITS, -1e300])
def test_values_that_cannot_be_held_are_refused(bad: float) -> None:
    with raises("wire.range", "sums"):
        LAYOUT.pack({"sums": np.full((3, 2), bad)})


def test_other_shapes_and_names_are_refused() -> None:
    with raises("wire.form", "sums"):
        LAYOUT.pack({"sums": np.zeros((2, 3))})
    with raises("wire.form", "vector"):
        LAYOUT.pack({"names": np.zeros(3)})


@pytest.mark.parametrize(("digits", "error"), [(BITS, 0.2), (40, 1e-6)])
def test_small_features_need_more_digits(digits: int, error: float) -> None:
    """Of 100 images a site with features of 1e-4: second moments of 1e-6, which 20 digits hardly resolve."""
    layout = KEPT.layout(Sizes(2, 3, 3, digits))
    moments = np.full(6, 100 * 1e-8)
    total = layout.unpack(layout.pack({MOMENTS: moments}) * np.uint64(5))
    worst = np.abs(total[MOMENTS] / (5 * moments) - 1).max()
    assert worst <= error
    assert digits > BITS or worst > 0.01
