"""Class sums and global prototypes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med.prototypes import ClassSums, Prototypes


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_sums_are_additive_and_give_the_class_means(first: int, second: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(first + second, 3, generator=generator)
    labels = torch.randint(4, (first + second,), generator=generator)
    whole = ClassSums.from_features(features, labels, 4)
    parts = ClassSums.from_features(features[:first], labels[:first], 4) + ClassSums.from_features(
        features[first:], labels[first:], 4
    )
    torch.testing.assert_close(parts.sums, whole.sums)
    assert torch.equal(parts.counts, whole.counts)
    for c in range(4):
        rows = features[labels == c].double()
        assert whole.counts[c] == len(rows)
        torch.testing.assert_close(whole.sums[c], rows.sum(0))


def test_only_drops_sum_and_count_of_other_classes() -> None:
    sums = ClassSums(torch.ones(3, 2, dtype=torch.float64), torch.tensor([4, 5, 6]))
    kept = sums.only(torch.tensor([True, False, True]))
    assert kept.counts.tolist() == [4, 0, 6]
    assert kept.sums.tolist() == [[1, 1], [0, 0], [1, 1]]


def test_global_prototypes_are_the_class_weighted_mean() -> None:
    first = ClassSums(torch.tensor([[2.0, 4.0]]).double(), torch.tensor([2]))  # mean (1, 2)
    second = ClassSums(torch.tensor([[24.0, 0.0]]).double(), torch.tensor([6]))  # mean (4, 0)
    prototypes = Prototypes.none(1, 2).updated(first + second)
    assert prototypes.means.tolist() == [[3.25, 0.5]]


def test_a_class_nobody_shares_keeps_its_prototype_and_ages() -> None:
    shared = ClassSums(torch.tensor([[2.0], [3.0], [0.0]]).double(), torch.tensor([1, 1, 0]))
    nothing = ClassSums.zeros(3, 1)
    only_first = shared.only(torch.tensor([True, False, False]))
    first = Prototypes.none(3, 1).updated(shared)
    assert first.available.tolist() == [True, True, False]
    assert first.age.tolist() == [0, 0, 0]
    later = first.updated(nothing).updated(only_first)
    assert later.means.flatten().tolist() == [2, 3, 0]
    assert later.age.tolist() == [0, 2, 0]
    assert later.available.tolist() == [True, True, False]


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="counts"):
        ClassSums(torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(ValueError, match="age"):
        Prototypes(torch.zeros(3, 2), torch.zeros(3, dtype=torch.bool), torch.zeros(2))


def test_old_prototypes_take_no_part_beyond_their_limit() -> None:
    prototypes = Prototypes(torch.eye(3), torch.tensor([True, True, False]), torch.tensor([0, 4, 0], dtype=torch.int64))
    assert prototypes.younger_than(None).available.tolist() == [True, True, False]
    assert prototypes.younger_than(4).available.tolist() == [True, True, False]
    assert prototypes.younger_than(3).available.tolist() == [True, False, False]


def test_missing_prototypes_come_from_elsewhere() -> None:
    ages = torch.zeros(2, dtype=torch.int64)
    mine = Prototypes(torch.ones(2, 3), torch.tensor([True, False]), ages)
    other = Prototypes(5 * torch.ones(2, 3), torch.tensor([True, True]), ages + 2)
    both = mine.or_else(other)
    assert both.means[:, 0].tolist() == [1, 5]
    assert both.available.tolist() == [True, True]
    assert both.age.tolist() == [0, 2]
