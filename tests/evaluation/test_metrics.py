"""Scores from confusion matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from fedmr_med.evaluation.metrics import Scores, confusion_matrix, pooled, scores


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_scores_equal_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    labels, predictions = (np.array(column) for column in zip(*pairs, strict=True))
    result = scores(confusion_matrix(labels, predictions, 5))
    assert result.accuracy == pytest.approx(accuracy_score(labels, predictions))
    assert result.mean_recall == pytest.approx(balanced_accuracy_score(labels, predictions))
    assert result.samples == len(pairs)


def test_an_empty_test_set_scores_zero() -> None:
    assert scores(np.zeros((3, 3), dtype=np.int64)).mean_recall == 0


def test_pooling_covers_and_names_the_sites_that_share_their_matrix() -> None:
    a = scores(np.array([[3, 1], [0, 0]]))
    b = scores(np.array([[0, 0], [2, 2]]))
    silent = Scores(accuracy=1.0, mean_recall=1.0, samples=99)
    pool, sites = pooled({"b": b, "a": a, "silent": silent})
    assert sites == ("a", "b")
    assert pool.mean_recall == pytest.approx((3 / 4 + 2 / 4) / 2)
    assert pooled({"silent": silent}) == (None, ())
