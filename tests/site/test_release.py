"""The rule of what may leave, for any policy and any reply."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.evaluation.metrics import scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.site.release import leaving
from fedmr_med.statistics.scores import SCORES, permitted_scores, released_scores, without_small_cells
from fedmr_med.wire.codec import encode_reply
from fedmr_med.wire.kinds import HEAD, TRAIN
from fedmr_med.wire.messages import SiteReply
from tests.helpers.replies import form_with
from tests.helpers.small import lenient

NAMES = ("MEL", "NV", "BCC", "AK")
FORM = form_with(NAMES)
REPORT = SiteReport(seconds=1.5, terms={"classification": 0.1}, images_total=9, images_skipped=1)

policies = st.builds(
    SitePolicy,
    share_prototypes=st.one_of(st.booleans(), st.lists(st.sampled_from(NAMES), unique=True).map(tuple)),
    min_class_count=st.integers(1, 20),
    min_cell_count=st.just(1),  # tests/privacy/test_small_cells.py has the rule of cells
    share_metrics=st.sampled_from(["none", "scalar", "per_class"]),
    allow_submit_model=st.booleans(),
    round_samples=st.sampled_from([1, 10, 25]),
)
counts = st.lists(st.integers(0, 30), min_size=4, max_size=4)


def reply(numbers: list[int]) -> SiteReply:
    held = torch.tensor(numbers)
    sums = ClassSums(torch.rand(4, 3, dtype=torch.float64) * held[:, None], held)
    confusion = np.array([[9, 3, 0, 1], [0, 4, 0, 0], [0, 0, 0, 0], [2, 1, 3, 6]])
    statistics = {"prototypes": sums, "scores": scores(confusion)}
    return SiteReply("x", 0, 100, "0" * 16, {"w": np.ones(2)}, {"p": np.ones(1)}, REPORT, statistics)


@given(policies, counts)
def test_exactly_the_chosen_and_large_enough_classes_leave(policy: SitePolicy, numbers: list[int]) -> None:
    full = reply(numbers)
    sent = leaving(TRAIN, full, policy, FORM)
    chosen = policy.share_prototypes
    names = set(NAMES if chosen is True else () if chosen is False else chosen)
    for index, name in enumerate(NAMES):
        leaves = name in names and numbers[index] >= policy.min_class_count
        held = 0 if sent.prototypes is None else int(sent.prototypes.counts[index])
        assert held == (numbers[index] if leaves else 0)
        if sent.prototypes is not None:
            expected = full.prototypes.sums[index] * leaves
            assert torch.equal(sent.prototypes.sums[index], expected)
    assert sent.model is full.model
    assert sent.payload is full.payload
    assert sent.samples % policy.round_samples == 0
    assert full.samples <= sent.samples < full.samples + policy.round_samples


@given(policies, counts)
def test_metrics_leave_as_far_as_the_policy_says(policy: SitePolicy, numbers: list[int]) -> None:
    full = reply(numbers)
    sent = leaving(TRAIN, full, policy, FORM)
    chosen = policy.chosen_classes(NAMES)
    large = full.scores.confusion.sum(1) >= policy.min_class_count
    per_class = policy.share_metrics == "per_class" and chosen.any()
    rows = large & chosen if per_class else large
    enough = rows.sum() >= (1 if per_class else 2)  # over one class a model that always answers with it scores 1
    assert (sent.scores is None) == (policy.share_metrics == "none" or not enough)
    if sent.scores is not None:
        assert (sent.scores.confusion is not None) == per_class
        assert sent.scores.samples == full.scores.confusion[rows].sum()
    if per_class and sent.scores is not None:
        assert np.array_equal(sent.scores.confusion, full.scores.confusion * rows[:, None])
        assert set(np.flatnonzero(~chosen)) <= set(sent.scores.withheld)
        assert not set(np.flatnonzero(rows)) & set(sent.scores.withheld)
    assert (sent.report is None) == (policy.share_metrics == "none")
    if sent.report is not None and policy.round_samples > 1:
        told = sent.samples + (sent.scores.samples if sent.scores else 0)
        assert sent.report.images_total == told + REPORT.images_skipped


@given(policies, counts)
def test_what_may_leave_may_leave_again(policy: SitePolicy, numbers: list[int]) -> None:
    once = leaving(TRAIN, reply(numbers), policy, FORM)
    again = leaving(TRAIN, once, policy, FORM)
    assert (once.prototypes is None) == (again.prototypes is None)
    if once.prototypes is not None:
        assert torch.equal(once.prototypes.sums, again.prototypes.sums)
    assert str(encode_reply(TRAIN, once)) == str(encode_reply(TRAIN, again))
    assert once.report == again.report


def test_no_cell_of_the_matrix_is_small_and_recalls_are_exact() -> None:
    confusion = np.array([[30, 4, 9, 0], [3, 15, 0, 12], [20, 0, 5, 15], [0, 7, 2, 12]])
    joined = without_small_cells(confusion, 11)
    assert joined.tolist() == [[30, 0, 13, 0], [0, 15, 0, 15], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert np.array_equal(without_small_cells(joined, 11), joined)
    assert np.array_equal(without_small_cells(confusion, 1), confusion)
    policy = SitePolicy(share_prototypes=True, share_metrics="per_class")
    left = permitted_scores(scores(confusion), policy, ("a", "b", "c", "d"))
    assert left is not None
    assert left.confusion is not None
    assert np.array_equal(left.confusion, joined)
    assert left.withheld == (2, 3), "the classes that do not count are named"
    assert left.samples == 73, "and so is the number of images that do"
    assert left.mean_recall == pytest.approx((30 / 43 + 15 / 30) / 2)
    assert permitted_scores(scores(np.diag([20, 20, 20, 20]) + 1), policy, ("a", "b", "c", "d")) is None


def test_how_patients_go_together_leaves_if_every_class_has_enough_of_them() -> None:
    """And in two digits, so that nobody solves for single patients."""
    policy = lenient(share_prototypes=True, share_metrics="per_class")
    generator, names = np.random.default_rng(0), ("a", "b")
    labels = np.repeat([0, 1], 60)
    logits = generator.normal(size=(120, 2)) + np.eye(2)[labels]
    many, few = np.arange(120) // 5, np.concatenate([np.arange(60) // 5, 12 + np.arange(60) // 6])
    found = released_scores(logits, labels, policy, names, many)
    assert found is not None and found.clustering is not None
    assert all(float(f"{value:.2g}") == value for part in vars(found.clustering).values() for value in part)
    alone = released_scores(logits, labels, policy, names, few)
    assert alone is not None and alone.histograms is not None and alone.clustering is None
    # The same rule once more, as at the filter: what was made of a class that may not leave goes with it.
    again = permitted_scores(found, policy, names)
    assert again is not None and again.clustering is not None
    assert np.array_equal(again.clustering.together, found.clustering.together)
    narrower = permitted_scores(found, policy.model_copy(update={"share_prototypes": ("a",)}), names)
    assert narrower is not None and narrower.clustering is None


def test_validation_images_are_under_the_same_rule() -> None:
    policy = SitePolicy(share_prototypes=True, share_metrics="per_class")
    few = np.diag([20, 20, 5, 0])
    full = replace(scores(np.diag([30, 30, 30, 30])), validation=scores(few))
    left = permitted_scores(full, policy, NAMES)
    assert left is not None and left.validation is not None and left.validation.confusion is not None
    assert np.diag(left.validation.confusion).tolist() == [20, 20, 0, 0]
    for closed in ({"share_metrics": "scalar"}, {"share_prototypes": False}):
        alone = permitted_scores(full, policy.model_copy(update=closed), NAMES)
        assert alone is not None and alone.validation is None, "scalars choose nothing"
    sent = leaving(TRAIN, reply([20, 20, 20, 20]).with_statistic(SCORES, full), policy, FORM)
    assert sent.report is not None and sent.scores is not None
    assert sent.report.images_total == sent.samples + 120 + 40 + REPORT.images_skipped


def test_what_is_no_statistic_of_the_exchange_does_not_leave() -> None:
    counts = np.full(4, 50)
    means = {"means": {"counts": counts, "sums": np.ones((4, 1))}}
    odd = replace(reply([50] * 4), statistics=means | {"unheard-of": counts})
    open_ = SitePolicy(share_prototypes=True, share_metrics="per_class", training=None)
    assert leaving(TRAIN, odd, open_, FORM).statistics == {}
    assert leaving(HEAD, odd, open_, FORM).statistics.keys() == {"means"}
