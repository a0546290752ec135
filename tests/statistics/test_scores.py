"""Scores as fields: they come back, add up, and what cannot be of the images of the matrix is refused."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.arrays import Arrays
from fedmr_med.errors import WireError
from fedmr_med.evaluation.clustering import Clustering
from fedmr_med.evaluation.metrics import confusion_matrix, scored, scores
from fedmr_med.statistics.base import Origin, Sizes
from fedmr_med.statistics.fields import add
from fedmr_med.statistics.scores import CONFUSION, SCORES
from tests.helpers.errors import raises
from tests.helpers.outputs import outputs

FOUND = scored(*outputs(0, 200))
SIZES = Sizes(4, 0, 0)


def sent() -> Arrays:
    return {name: array.copy() for name, array in SCORES.layout(SIZES).sent(SCORES.values(FOUND)).items()}


def test_scores_come_back_with_their_histograms() -> None:
    read = SCORES.read(SCORES.layout(SIZES).checked(sent(), "scores"))
    assert read is not None and read.histograms is not None and FOUND.histograms is not None
    assert read.accuracy == FOUND.accuracy
    for name, array in vars(FOUND.histograms).items():
        assert np.array_equal(array, getattr(read.histograms, name))


def test_sites_with_rare_answers_add_up_to_histograms_with_the_answers_of_the_others() -> None:
    """A site with a few wrong answers sends none of its answers, and that must not cost the others' calibration."""
    rare = sent() | {"right": np.zeros(200, np.int64), "wrong": np.zeros(200, np.int64)}
    without = {name: array if name == CONFUSION else np.zeros_like(array) for name, array in sent().items()}
    read = SCORES.read(add(sent(), rare, without), Origin(sites=3))
    assert read is not None and read.histograms is not None
    assert read.samples == 3 * 200
    assert read.histograms.samples == 2 * 200
    assert (read.histograms.right == sent()["right"]).all()


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
        changed("alone", lambda a: a + 1e30),
        changed("together", lambda a: a + 1e30),
    ],
)
def test_what_cannot_be_is_refused(arrays: Arrays) -> None:
    with pytest.raises(WireError):
        SCORES.read(SCORES.layout(SIZES).checked(arrays, "scores"))


@given(
    st.integers(2, 60).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 3)),
    st.sampled_from([1.0, 1000.0]),
)
def test_no_images_have_residuals_that_are_refused(images: tuple[list[int], ...], sure: float) -> None:
    labels, answers, units = (np.array(column) for column in images)
    clustering = Clustering.of(sure * np.eye(4)[answers], labels, units).rounded()
    matrix = confusion_matrix(labels, answers, 4)
    assert SCORES.read(SCORES.values(replace(scores(matrix), clustering=clustering))) is not None


def test_a_total_with_more_than_its_sites_have_is_refused() -> None:
    for name, code in ((CONFUSION, "wire.counts"), ("right", "wire.counts"), ("brier", "wire.range")):
        total = add(sent(), sent())
        total[name] = -total[name] if name == CONFUSION else 10 * total[name]
        with raises(code):
            SCORES.read(total, Origin(sites=2))


def test_scalars_alone_do_not_add_up() -> None:
    assert SCORES.values(type(FOUND)(0.5, 0.5, 10)) == {}
