"""Histograms on the wire: they come back, and what cannot be of the images of the matrix is refused."""

from collections.abc import Callable

import numpy as np
import pytest

from fedmr_med.arrays import Arrays
from fedmr_med.errors import WireError
from fedmr_med.evaluation.metrics import scored
from fedmr_med.wire.codec import decode_scores, encode_scores
from fedmr_med.wire.histograms import decode_histograms, encode_histograms
from tests.helpers.errors import raises
from tests.helpers.outputs import outputs

SCORES = scored(*outputs(0, 200))


def sent() -> Arrays:
    assert SCORES.histograms is not None
    return {name: array.copy() for name, array in encode_histograms(SCORES.histograms).items()}


def test_scores_come_back_with_their_histograms() -> None:
    decoded = decode_scores(encode_scores(SCORES), 4, sent())
    assert decoded is not None and decoded.histograms is not None
    assert all(np.array_equal(array, getattr(decoded.histograms, name)) for name, array in sent().items())


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    arrays = sent()
    arrays[name] = change(arrays[name])
    return arrays


def moved(array: np.ndarray) -> np.ndarray:
    array[0, 0] += 1
    array[1, 0] -= 1 if array[1, 0] else 0
    return array


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        sent() | {"more": np.zeros(2)},
        changed("positives", lambda a: a[:, 1:]),
        changed("positives", lambda a: a.astype(np.float64)),
        changed("positives", lambda a: a + 1),
        changed("positives", lambda a: -a),
        changed("negatives", moved),
        changed("right", lambda a: a * 2),
        changed("wrong", lambda a: np.zeros_like(a)),
        changed("nll", lambda a: a * np.nan),
        changed("nll", lambda a: a - 1e6),
        changed("nll", lambda a: a + 1e6),
        changed("brier", lambda a: np.array([np.inf, 1.0])),
        changed("brier", lambda a: np.array([500.0, 1.0])),
    ],
)
def test_what_cannot_be_is_refused(arrays: Arrays) -> None:
    assert SCORES.confusion is not None
    with pytest.raises(WireError):
        decode_histograms(arrays, SCORES.confusion)


def test_histograms_need_scores_with_a_matrix() -> None:
    scalars = encode_scores(SCORES) | {"confusion": None}  # type: ignore[operator]
    for content in (None, scalars):
        with raises("wire.form", "histograms"):
            decode_scores(content, 4, sent())
