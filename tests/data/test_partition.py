"""Properties of the partitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.data.partition import (
    Split,
    dirichlet,
    iid,
    parse_split,
    partition,
    pcdd,
    thin,
)
from tests.helpers.errors import raises


def labels_of(classes: int, per_class: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), per_class))


def counts_table(parts: list[np.ndarray], labels: np.ndarray, classes: int) -> np.ndarray:
    """Return how many samples of each class each client holds, (clients, classes)."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def assert_deals_every_sample_once(parts: list[np.ndarray], samples: int) -> None:
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))
    assert all(part.dtype == np.int64 and len(part) for part in parts)


@st.composite
def pcdd_requests(draw: st.DrawFn) -> tuple[np.ndarray, int, int, int]:
    """Draw labels of unequal class sizes, clients, sigma and a seed that can be dealt."""
    classes = draw(st.integers(1, 12))
    sigma = draw(st.integers(1, classes))
    clients = draw(st.integers(-(-classes // sigma), 20))
    sizes = draw(st.lists(st.integers(clients, clients + 30), min_size=classes, max_size=classes))
    seed = draw(st.integers(0, 1000))
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), sizes))
    return labels, clients, sigma, seed


@given(pcdd_requests())
def test_pcdd_is_disjoint_complete_and_gives_exactly_sigma_classes_in_equal_shares(request_):
    labels, clients, sigma, seed = request_
    parts = pcdd(labels, clients, sigma, seed)
    assert len(parts) == clients
    assert_deals_every_sample_once(parts, len(labels))
    table = counts_table(parts, labels, labels.max() + 1)
    assert ((table > 0).sum(axis=1) == sigma).all()
    for column in table.T:
        held = column[column > 0]
        assert held.max() - held.min() <= 1
    again = pcdd(labels, clients, sigma, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@given(pcdd_requests())
def test_pcdd_deals_the_classes_in_order_first(request_):
    labels, clients, sigma, seed = request_
    table = counts_table(pcdd(labels, clients, sigma, seed), labels, labels.max() + 1)
    for c in range(table.shape[1]):
        assert table[c // sigma, c] > 0


def test_pcdd_draws_the_remaining_slots_and_samples_by_seed():
    labels = labels_of(10, 100)
    tables = [counts_table(pcdd(labels, 10, 3, seed), labels, 10) for seed in range(5)]
    assert len({table.tobytes() for table in tables}) == 5
    assert all(np.array_equal(table[:3] > 0, tables[0][:3] > 0) for table in tables)  # dealt in order
    shares = [pcdd(labels, 2, 10, seed) for seed in (0, 1)]
    assert not np.array_equal(shares[0][0], shares[1][0])


def test_the_papers_p5c2_is_five_pairs_of_classes():
    labels = labels_of(10, 20)
    table = counts_table(pcdd(labels, 5, 2, 0), labels, 10)
    assert np.array_equal(table, np.kron(np.eye(5, dtype=int), [[20, 20]]))


def test_classes_that_find_no_slot_are_left_out_only_when_asked():
    labels = labels_of(10, 20)
    with raises("split.too-few-slots"):
        pcdd(labels, 3, 2, 0)
    table = counts_table(pcdd(labels, 3, 2, 0, allow_missing_classes=True), labels, 10)
    assert np.array_equal(table.sum(axis=0), [20] * 6 + [0] * 4)
    assert ((table > 0).sum(axis=1) == 2).all()


@given(st.integers(1, 10), st.integers(1, 40), st.integers(0, 1000))
def test_iid_is_disjoint_complete_and_equal(clients, extra, seed):
    labels = labels_of(3, clients + extra, seed)
    parts = iid(labels, clients, seed)
    assert_deals_every_sample_once(parts, len(labels))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(np.array_equal(a, b) for a, b in zip(parts, iid(labels, clients, seed), strict=True))


@given(st.integers(1, 10), st.floats(0.2, 100), st.integers(0, 1000))
def test_dirichlet_is_disjoint_complete_and_leaves_nobody_empty(clients, beta, seed):
    labels = labels_of(10, 40, seed)
    parts = dirichlet(labels, clients, beta, seed)
    assert len(parts) == clients
    assert_deals_every_sample_once(parts, len(labels))
    assert all(np.array_equal(a, b) for a, b in zip(parts, dirichlet(labels, clients, beta, seed), strict=True))
    assert min(map(len, parts)) >= min(10, 100 // clients)


def test_a_dirichlet_split_is_drawn_again_while_a_client_has_too_few_samples():
    labels = labels_of(10, 400)
    smallest = [min(map(len, dirichlet(labels, 20, 0.1, seed))) for seed in range(20)]
    assert min(smallest) >= 10
    loose = [min(map(len, dirichlet(labels, 20, 0.1, seed, fewest=1))) for seed in range(20)]
    assert min(loose) < 10, "or nothing would have been drawn again"
    assert parse_split("dir0.1-min1") == Split(beta=0.1, fewest=1)
    parts = partition(labels, "dir0.1-min1", 20, 3)
    assert all(np.array_equal(a, b) for a, b in zip(parts, dirichlet(labels, 20, 0.1, 3, fewest=1), strict=True))


def test_beta_decides_how_unequal_dirichlet_is():
    labels = labels_of(10, 500)

    def spread(beta: float) -> float:
        return float(np.mean([counts_table(dirichlet(labels, 10, beta, s), labels, 10).std() for s in range(5)]))

    assert spread(0.1) > 2 * spread(1) > 4 * spread(100)


@pytest.mark.parametrize("deal", [lambda y, s: iid(y, 4, s), lambda y, s: dirichlet(y, 4, 0.5, s)])
def test_another_seed_gives_another_partition(deal):
    labels = labels_of(5, 50)
    assert not np.array_equal(deal(labels, 0)[0], deal(labels, 1)[0])


@pytest.mark.parametrize(
    ("deal", "code"),
    [
        (lambda y: pcdd(y, 5, 11, 0), "split.classes"),
        (lambda y: pcdd(y, 5, 0, 0), "split.classes"),
        (lambda y: pcdd(y, 0, 2, 0), "split.no-clients"),
        (lambda y: iid(y, 0, 0), "split.no-clients"),
        (lambda y: iid(y, -3, 0), "split.no-clients"),
        (lambda y: iid(y, 51, 0), "split.too-many-clients"),
        (lambda y: pcdd(y, 51, 2, 0), "split.too-many-clients"),
        (lambda y: pcdd(y, 50, 10, 0), "split.class-too-small"),
        (lambda y: dirichlet(y, 51, 1.0, 0), "split.too-many-clients"),
        (lambda y: dirichlet(y, 5, 0.0, 0), "split.beta"),
        (lambda y: dirichlet(y, 5, -1.0, 0), "split.beta"),
        (lambda y: dirichlet(y, 5, float("nan"), 0), "split.beta"),
        (lambda y: dirichlet(y, 25, 0.01, 0), "split.too-few-samples"),
        (lambda y: iid(y.astype(float), 5, 0), "split.labels"),
        (lambda y: thin(y, 0, 0), "split.fraction"),
        (lambda y: thin(y, 1.5, 0), "split.fraction"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(deal, code: str):
    with raises(code):
        deal(labels_of(10, 5))


def test_splits_are_parsed():
    assert parse_split("P5C2") == Split(clients=5, classes_per_client=2)
    assert parse_split("dir0.5") == Split(beta=0.5)
    assert parse_split("dir10") == Split(beta=10)
    assert parse_split("iid") == Split()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "split.form") for text in ("", "P5", "P5C", "p5c2", "P5C2 ", "P0C2", "P5C0", "dir", "dirx", "IID")),
        *((text, "split.beta") for text in ("dir0", "dir-1")),
    ],
)
def test_other_splits_are_refused(text, code):
    with raises(code):
        parse_split(text)


def test_partition_follows_the_split():
    labels = labels_of(10, 20)
    cases = {"P5C4": pcdd(labels, 5, 4, 1), "dir0.5": dirichlet(labels, 5, 0.5, 1), "iid": iid(labels, 5, 1)}
    for split, expected in cases.items():
        assert all(np.array_equal(a, b) for a, b in zip(partition(labels, split, 5, 1), expected, strict=True))
    with raises("split.clients"):
        partition(labels, "P5C2", 4, 1)


@given(st.floats(0.01, 1), st.integers(0, 100))
def test_thin_keeps_the_same_share_of_every_class(fraction, seed):
    labels = labels_of(4, 50, seed)
    rows = thin(labels, fraction, seed)
    assert len(np.unique(rows)) == len(rows)
    assert set(np.bincount(labels[rows])) == {max(1, round(50 * fraction))}
