"""Scores by subgroup: no small number leaves in them, nor follows from them and the scores of all images."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.data.subgroups import is_of, of_levels
from fedmr_med.errors import WireError
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.statistics.base import Leaving, Sizes
from fedmr_med.statistics.catalog import layouts
from fedmr_med.statistics.scores import SCORES, released_scores
from fedmr_med.statistics.subgroups import SUBGROUPS, Levels, released_subgroups
from fedmr_med.wire.codec import Message, decode_reply, encode_reply
from fedmr_med.wire.kinds import VALIDATE
from fedmr_med.wire.messages import SiteReply
from tests.helpers.errors import raises

NAMES = ("MEL", "NV", "BCC")
LEVELS = (("sex", "f"), ("sex", "m"), ("device", "x"), ("device", "y"), ("device", "z"))
LEAST = 11
DEFAULT = SitePolicy(share_prototypes=True, share_metrics="per_class", share_subgroups=True)
EVERYTHING = DEFAULT.model_copy(update={"min_class_count": 1, "min_cell_count": 1})
Told = tuple[np.ndarray, np.ndarray, np.ndarray]


def permitted(levels: Levels, whole: Scores | None, policy: SitePolicy) -> Levels:
    """Return what a filter lets pass."""
    left = SUBGROUPS.permitted(levels, Leaving(policy, NAMES, LEVELS, left={"scores": whole}))
    return left or [None] * len(LEVELS)


def encoded(whole: Scores | None, levels: Levels) -> Message:
    return encode_reply(VALIDATE, SiteReply("msk").with_statistic(SCORES, whole).with_statistic(SUBGROUPS, levels))


def decoded(message: Message, levels: int) -> Levels:
    agreed = layouts(VALIDATE, Sizes(len(NAMES), 0, 0, levels=levels))
    return decode_reply(VALIDATE, message, "msk", agreed).of(SUBGROUPS)


def members(sex: np.ndarray, device: np.ndarray) -> np.ndarray:
    """Return which images are of which level; a third sex and a fourth device are of none."""
    return np.column_stack([sex == 0, sex == 1, device == 0, device == 1, device == 2])


@st.composite
def answers(draw: st.DrawFn) -> Told:
    """Logits (n, C), labels (n,) and levels (n, S), with small cells in many places."""
    cells = draw(st.lists(st.sampled_from([0, 1, 3, 11, 12, 30, 60]), min_size=9, max_size=9))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    labels, said = (np.repeat(index, cells) for index in np.divmod(np.arange(9), 3))
    logits = generator.normal(size=(len(labels), 3))
    logits[np.arange(len(labels)), said] = logits.max(1, initial=0) + 0.1
    shares = generator.dirichlet(np.full(3, draw(st.sampled_from([0.3, 1.0, 5.0]))))
    sex, device = generator.choice(3, len(labels), p=shares), generator.integers(0, 4, len(labels))
    return draw(st.sampled_from([1.0, 1000.0])) * logits, labels, members(sex, device)


def told(found: Told, policy: SitePolicy) -> tuple[Scores | None, Levels]:
    logits, labels, of_level = found
    whole = released_scores(logits, labels, policy, NAMES)
    return whole, released_subgroups(logits, labels, of_level, whole, policy, NAMES, LEVELS)


def small_numbers(whole: Scores | None, levels: Levels) -> int:
    """Return how many numbers of answers from 1 to 10 are told, or are left when levels are subtracted."""
    if whole is None or whole.confusion is None:
        return 0
    matrices = {level: scores.confusion for level, scores in enumerate(levels) if scores is not None}
    rests = [
        whole.confusion - sum((matrices[level] for level in own if level in matrices), np.zeros((3, 3), np.int64))
        for own in ((0, 1), (2, 3, 4))
    ]
    numbers = []
    for matrix in [*matrices.values(), *rests]:
        right = np.diag(matrix)
        numbers += [right, matrix.sum(1) - right]
    exact = {level for level, scores in enumerate(levels) if scores is not None and scores.histograms is not None}
    numbers += [matrices[level].ravel() for level in exact]
    for own, rest in zip(((0, 1), (2, 3, 4)), rests, strict=True):
        if exact & {*own}:
            numbers.append(rest.ravel())
    flat = np.concatenate(numbers)
    assert (flat >= 0).all()
    return int(((flat > 0) & (flat < LEAST)).sum())


@given(answers())
def test_no_small_number_leaves_or_follows(found: Told) -> None:
    assert small_numbers(*told(found, DEFAULT)) == 0


def test_the_attack_reads_small_numbers_where_a_policy_lets_it() -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 40)
    found = (
        generator.normal(size=(120, 3)),
        labels,
        members(generator.integers(0, 3, 120), generator.integers(0, 4, 120)),
    )
    assert small_numbers(*told(found, EVERYTHING)) > 10


@pytest.mark.slow
@given(answers(), st.sampled_from([DEFAULT, EVERYTHING]))
def test_what_may_leave_may_leave_again(found: Told, policy: SitePolicy) -> None:
    whole, levels = told(found, policy)
    again = permitted(levels, whole, policy)
    assert str(encoded(whole, again)) == str(encoded(whole, levels))


def large(seed: int = 0) -> Told:
    generator = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], 200)
    logits = generator.normal(size=(600, 3)) + 1.0 * np.eye(3)[labels]
    return logits, labels, members(generator.integers(0, 3, 600), generator.integers(0, 4, 600))


def test_a_level_has_the_scores_of_its_images() -> None:
    """Those of scikit-learn on the very images."""
    from sklearn.metrics import recall_score

    logits, labels, of_level = large()
    _, levels = told((logits, labels, of_level), EVERYTHING)
    for level, scores in enumerate(levels):
        mask = of_level[:, level]
        assert scores is not None and scores.histograms is not None and scores.confusion is not None
        assert np.array_equal(scores.confusion, confusion_matrix(labels[mask], logits[mask].argmax(1), 3))
        assert scores.mean_recall == pytest.approx(
            recall_score(labels[mask], logits[mask].argmax(1), average="macro"), abs=1e-12
        )


def test_large_levels_leave_by_the_default_rules() -> None:
    whole, levels = told(large(), DEFAULT)
    assert whole is not None and all(scores is not None for scores in levels)


@pytest.mark.parametrize("shared", [False, ("device",)])
def test_a_column_that_the_policy_does_not_name_stays(shared: bool | tuple[str, ...]) -> None:
    policy = EVERYTHING.model_copy(update={"share_subgroups": shared})
    whole, levels = told(large(), policy)
    assert [scores is not None for scores in levels] == [False, False, *[bool(shared)] * 3]
    forged = told(large(), EVERYTHING)[1]
    left = permitted(forged, whole, policy)
    assert [scores is not None for scores in left] == [False, False, *[bool(shared)] * 3]


def test_nothing_by_level_leaves_where_the_whole_does_not() -> None:
    for level in ("none", "scalar"):
        policy = EVERYTHING.model_copy(update={"share_metrics": level})
        assert told(large(), policy)[1] == [None] * 5


def test_the_filter_takes_out_what_a_site_should_have_kept() -> None:
    """A level of eight images of a class, made by a component that does not know the rule."""
    logits, labels, of_level = large()
    few = of_level.copy()
    few[np.flatnonzero(few[:, 0] & (labels == 0))[8:], 0] = False
    whole, forged = released_scores(logits, labels, DEFAULT, NAMES), told((logits, labels, few), EVERYTHING)[1]
    left = permitted(forged, whole, DEFAULT)
    assert left[0] is None and left[1] is not None
    assert small_numbers(whole, left) == 0


def test_the_server_refuses_levels_of_images_that_are_not_there() -> None:
    whole, levels = told(large(), EVERYTHING)
    message = encoded(whole, levels)
    assert sum(scores is not None for scores in decoded(message, 5)) == 5
    for wrong in (4, 6, 0):
        with pytest.raises(WireError):
            decoded(message, wrong)
    assert whole is not None and whole.confusion is not None
    smaller = replace(whole, confusion=whole.confusion // 4)
    with raises("wire.counts", "subgroups"):
        SUBGROUPS.check(levels, {"scores": smaller})
    with raises("wire.counts", "subgroups"):
        decoded(Message({"subgroups": message.parts["subgroups"]}, {"scores": None}), 5)


def test_levels_are_texts_in_any_case_and_bands_of_numbers() -> None:
    assert is_of("Female", "female") and not is_of("", "female")
    ages = {
        age: [is_of(age, band) for band in ("0-39", "40-59", "60+")] for age in ("39.5", "40", "59", "60", "n/a", "")
    }
    assert [row.index(True) if any(row) else None for row in ages.values()] == [0, 1, 1, 2, None, None]
    overlapping = (("age", "0-50"), ("age", "40+"))
    assert of_levels({"age": "45"}, overlapping) == [True, False], "an image is of one level of a column at most"
