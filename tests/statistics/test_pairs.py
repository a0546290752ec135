"""What of a comparison of two models may leave a site: tables without small cells, of classes that leave anyway."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.errors import WireError
from fedmr_med.evaluation.metrics import Scores, confusion_matrix, scores
from fedmr_med.evaluation.pairs import Pairs
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.catalog import layouts
from fedmr_med.statistics.pairs import PAIRS, permitted_pairs, released_pairs
from fedmr_med.statistics.scores import SCORES, permitted_scores
from fedmr_med.wire.codec import Message, decode_reply, encode_reply
from fedmr_med.wire.kinds import VALIDATE
from fedmr_med.wire.messages import SiteReply

NAMES = ("MEL", "NV", "BCC")
DEFAULT = SitePolicy(share_prototypes=True, share_metrics="per_class")
EVERY_CELL = DEFAULT.model_copy(update={"min_class_count": 1, "min_cell_count": 1})
FORM = layouts(VALIDATE, Sizes(3, 0, 0, pairs=True))
Answers = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@st.composite
def answers(draw: st.DrawFn) -> Answers:
    """Answers (n,) of two models, labels (n,) and patients (n,), with small cells in many places."""
    cells = draw(st.lists(st.sampled_from([0, 1, 5, 10, 11, 40]), min_size=12, max_size=12))
    labels, kind = (np.repeat(index, cells) for index in np.divmod(np.arange(12), 4))
    wrong = (labels + 1) % 3
    first, second = (np.where(np.isin(kind, right), labels, wrong) for right in ((0, 1), (0, 2)))
    return first, second, labels, np.arange(len(labels)) // draw(st.sampled_from([1, 3]))


def told(found: Answers, policy: SitePolicy) -> tuple[Scores | None, Pairs | None]:
    first, second, labels, units = found
    whole = permitted_scores(scores(confusion_matrix(labels, first, 3)), policy, NAMES)
    return whole, released_pairs((first, second), labels, whole, policy, units)


def sent(whole: Scores | None, pairs: Pairs | None) -> Message:
    return encode_reply(VALIDATE, SiteReply("").with_statistic(SCORES, whole).with_statistic(PAIRS, pairs))


def small(whole: Scores | None, pairs: Pairs | None) -> int:
    """Return how many numbers from 1 to 10 the tables tell, with the scores of the first model or without."""
    if pairs is None:
        return 0
    numbers = [pairs.cells.ravel()]
    if whole is not None and whole.confusion is not None:
        rows = pairs.cells.any(1)
        numbers.append((np.diag(whole.confusion) - pairs.cells[:, 0])[rows])
    flat = np.concatenate(numbers)
    return int(((flat > 0) & (flat < 11)).sum())


@given(answers())
def test_no_small_cell_leaves(found: Answers) -> None:
    whole, pairs = told(found, DEFAULT)
    assert small(whole, pairs) == 0
    again = permitted_pairs(pairs, whole, DEFAULT)
    assert str(sent(whole, again)) == str(sent(whole, pairs))


def varied(seed: int = 0, each: int = 1) -> Answers:
    generator = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], 200)
    first, second = (np.where(generator.uniform(size=600) < p, labels, (labels + 1) % 3) for p in (0.7, 0.6))
    return first, second, labels, np.arange(600) // each


def test_the_attack_reads_small_cells_where_a_policy_lets_it() -> None:
    first, second, labels, units = varied()
    few = np.concatenate([np.flatnonzero(labels == label)[:20] for label in range(3)])
    whole, pairs = told((first[few], second[few], labels[few], units[few]), EVERY_CELL)
    assert pairs is not None and small(whole, pairs) > 3


def test_tables_of_large_classes_leave_by_default_and_are_exact() -> None:
    found = varied()
    _, pairs = told(found, DEFAULT)
    assert pairs is not None and np.array_equal(pairs.cells, Pairs.of(*found[:3], 3).cells)
    assert pairs.together > 0


def test_patients_count_if_each_class_has_enough_of_them() -> None:
    _, pairs = told(varied(each=50), DEFAULT)
    assert pairs is not None and pairs.together == pairs.alone == 0


@pytest.mark.parametrize(
    "changes", [{"share_metrics": "scalar"}, {"share_metrics": "none"}, {"share_prototypes": ("NV",)}]
)
def test_a_policy_keeps_tables_as_it_keeps_scores(changes: dict[str, object]) -> None:
    policy = DEFAULT.model_copy(update=changes)
    whole, pairs = told(varied(), policy)
    if policy.share_metrics != "per_class":
        assert pairs is None
    else:
        assert pairs is not None and pairs.cells.any(1).tolist() == [False, True, False]
    forged = told(varied(), EVERY_CELL)[1]
    left = permitted_pairs(forged, whole, policy)
    assert (left is None) == (pairs is None)
    if left is not None and pairs is not None:
        assert np.array_equal(left.cells, pairs.cells) and left.together == 0, "squares of other classes stay"


def test_the_server_refuses_tables_of_other_images() -> None:
    whole, pairs = told(varied(), DEFAULT)
    assert pairs is not None and whole is not None
    assert decode_reply(VALIDATE, sent(whole, pairs), "", FORM).of(PAIRS) is not None
    more = pairs.cells + np.array([0, 0, 0, 1])
    lies = {"cells": more}, {"cells": -pairs.cells}, {"together": np.array(-1.0)}
    for lie in (replace(pairs, **changed) for changed in lies):
        with pytest.raises(WireError):
            decode_reply(VALIDATE, sent(whole, lie), "", FORM)
    with pytest.raises(WireError):
        decode_reply(VALIDATE, sent(None, pairs), "", FORM)
    with pytest.raises(WireError):  # nobody asked
        decode_reply(VALIDATE, sent(whole, pairs), "", layouts(VALIDATE, Sizes(3, 0, 0)))
