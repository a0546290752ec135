"""The rule against outliers, held against its definition: every site compared with each of the others."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.config import FederationConfig
from fedmr_med.prototypes import Prototypes
from fedmr_med.server.changes import Changes
from fedmr_med.server.robust import ENOUGH, QUARTER, SAME_WAY, SLACK, Comparison
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.messages import SiteReply

RULE = FederationConfig(rounds=1)
SHAPES = {"large": (300, 300), "small": (5, 7), "middle": (70, 130)}  # in several pieces, in one with others, in one
Updates = np.ndarray
"""One row for each site, float64."""


def state_of(size: int | None = None) -> GlobalState:
    """Return a state of ``size`` weights and two BatchNorm statistics; of all shapes without a size."""
    random = np.random.default_rng(0)
    shapes = SHAPES if size is None else {"weight": (size,)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    statistics = {"running_mean": np.zeros(2, np.float32), "num_batches_tracked": np.asarray(3)}
    return GlobalState(weights | statistics, frozenset(weights), Prototypes.none(2, 3), method={})


def reply(site: int, state: GlobalState, update: np.ndarray) -> SiteReply:
    """Return the reply of a site that moves the weights, in the order of their names, by ``update``."""
    model, position = dict(state.model), 0
    for name in sorted(state.parameters):
        start = state.model[name]
        part = update[position : position + start.size].reshape(start.shape)
        model[name] = (start + part).astype(start.dtype)
        position += start.size
    return SiteReply(f"site-{site:02}", 0, 10, "", model)


def distances_by_definition(updates: Updates) -> np.ndarray:
    """Return each update's distance from the mean of the others, each of them cut to the median length."""
    lengths = [np.sqrt((update**2).sum()) for update in updates]
    median = np.median(lengths)
    distances = []
    for k, update in enumerate(updates):
        mean = np.zeros_like(update)
        for j, other in enumerate(updates):
            if j != k:
                mean += other * (median / lengths[j] if lengths[j] > median else 1) / (len(updates) - 1)
        distances.append(float(np.sqrt(((update - mean) ** 2).sum())))
    return np.array(distances)


def by_definition(updates: Updates) -> np.ndarray:
    """Return these distances in multiples of their median; of those that are not 0."""
    distances = distances_by_definition(updates)
    positive = distances[distances > 0]
    return distances / np.median(positive) if len(positive) >= ENOUGH else np.zeros(len(updates))


def really_sent(replies: list[SiteReply], state: GlobalState) -> Updates:
    """Return the updates as they are after rounding to float32."""
    return np.stack(
        [
            np.concatenate(
                [r.model[n].astype(float).ravel() - state.model[n].ravel() for n in sorted(state.parameters)]
            )
            for r in replies
        ]
    )


def left_out(replies: list[SiteReply], state: GlobalState) -> set[str]:
    comparison = Comparison(state, RULE)
    for each in replies:
        comparison.note(each)
    return set(comparison.outliers({each.site: each for each in replies}))


def astray_by_definition(updates: Updates) -> np.ndarray:
    """Return the median cosine of each update with the others, over the median of all; 1 where there is no rule."""
    moved = [k for k, update in enumerate(updates) if update.any()]
    shares = np.ones(len(updates))
    if len(moved) < ENOUGH:
        return shares
    units = {k: updates[k] / np.linalg.norm(updates[k]) for k in moved}
    cosines = {k: float(np.median([units[k] @ units[j] for j in moved if j != k])) for k in moved}
    usual = float(np.median(list(cosines.values())))
    if usual >= SAME_WAY:
        shares[moved] = [cosines[k] / usual for k in moved]
    return shares


def expected(updates: Updates) -> set[str]:
    assert RULE.max_deviation is not None
    odd = (by_definition(updates) > RULE.max_deviation) | (astray_by_definition(updates) < QUARTER)
    return {f"site-{k:02}" for k in np.flatnonzero(odd)} if odd.sum() <= (len(odd) - 1) // 2 else set()


def honest(sites: int, values: int, seed: int, common: float = 1.0) -> Updates:
    """Return updates with a common part and one of each site's own, at the usual scale of a round."""
    random = np.random.default_rng(seed)
    return 0.01 * (common * random.standard_normal(values) + random.standard_normal((sites, values)))


@pytest.mark.parametrize("sites", [3, 4, 9])
@pytest.mark.parametrize("common", [0.0, 1.0, 30.0], ids=["nothing in common", "half", "nearly all"])
def test_figures_are_those_of_the_definition(sites: int, common: float) -> None:
    state = state_of()
    size = sum(state.model[name].size for name in state.parameters)
    updates = honest(sites, size, seed=sites, common=common)
    updates[0] *= 50
    replies = [reply(k, state, update) for k, update in enumerate(updates)]
    updates = really_sent(replies, state)
    changes = Changes(state.model, state.parameters)
    lengths = [changes.length(each.model) for each in replies]
    np.testing.assert_allclose(lengths, np.linalg.norm(updates, axis=1), rtol=1e-5)
    shares = [min(1.0, float(np.median(lengths)) / length) for length in lengths]
    for each, share in zip(replies, shares, strict=True):
        changes.add(each.model, share)
    distances = [changes.from_others(r.model, s, sites - 1) for r, s in zip(replies, shares, strict=True)]
    np.testing.assert_allclose(distances, distances_by_definition(updates), rtol=1e-4)


def flipped(updates: Updates, bad: int) -> Updates:
    return np.concatenate([-8 * updates[:bad], updates[bad:]])


def blown(updates: Updates, bad: int) -> Updates:
    return np.concatenate([1e6 * updates[:bad], updates[bad:]])


def in_league(updates: Updates, bad: int) -> Updates:
    """Let the bad ones send the same, so that they look like each other's company."""
    return np.concatenate([np.repeat(40 * updates[:1], bad, axis=0), updates[bad:]])


def graded(updates: Updates, bad: int) -> Updates:
    """Let each of the bad ones hide behind a longer one."""
    return np.concatenate([updates[:bad] * 10.0 ** np.arange(1, bad + 1)[:, None], updates[bad:]])


def opposed(updates: Updates, bad: int) -> Updates:
    """Let the bad ones cancel in the mean."""
    signs = np.where(np.arange(bad) % 2, 1, -1)[:, None]
    return np.concatenate([signs * 100 * updates[:1], updates[bad:]])


@pytest.mark.parametrize("attack", [flipped, blown, in_league, graded, opposed])
@pytest.mark.parametrize("sites", [3, 4, 5, 10, 31])
def test_a_minority_is_left_out_and_nobody_else(sites: int, attack: Callable[[Updates, int], Updates]) -> None:
    """Whatever fewer than half of the sites send, alone or together, it does not move the measure of the others."""
    state = state_of(500)
    for bad in range((sites - 1) // 2 + 1):
        updates = attack(honest(sites, 500, seed=bad), bad)
        replies = [reply(k, state, update) for k, update in enumerate(updates)]
        verdict = left_out(replies, state)
        assert verdict == expected(really_sent(replies, state))
        assert verdict == {f"site-{k:02}" for k in range(bad)}


lengths = st.sampled_from([0.0, 0.1, 1.0, 2.0, 3.0, 4.0, 6.0, 10.0, -1.0, -5.0, 1e3, -1e6])


@given(st.lists(lengths, min_size=3, max_size=9), st.integers(0, 5), st.sampled_from([0.0, 1.0, 5.0]))
def test_verdicts_are_those_of_the_definition(factors: list[float], seed: int, common: float) -> None:
    state = state_of(40)
    updates = honest(len(factors), 40, seed, common) * np.array(factors)[:, None]
    replies = [reply(k, state, update) for k, update in enumerate(updates)]
    sent = really_sent(replies, state)
    # In float32, the bounds themselves are a matter of rounding.
    clear = (abs(by_definition(sent) / 3 - 1) > 1e-3).all() and (abs(astray_by_definition(sent) - QUARTER) > 1e-3).all()
    if clear:
        assert left_out(replies, state) == expected(sent)


def test_the_order_of_the_replies_changes_no_verdict() -> None:
    state = state_of(100)
    replies = [reply(k, state, update) for k, update in enumerate(graded(honest(9, 100, seed=1), 3))]
    assert left_out(replies, state) == left_out(replies[::-1], state) == {"site-00", "site-01", "site-02"}


def test_sites_that_send_the_same_are_no_outliers() -> None:
    state = state_of(100)
    one = honest(1, 100, seed=0)[0]
    assert left_out([reply(k, state, one) for k in range(5)], state) == set()
    assert left_out([reply(k, state, 0 * one) for k in range(5)], state) == set()


@pytest.mark.parametrize(("factor", "verdict"), [(6, set()), (60, {"site-00"})])
def test_statistics_have_a_wider_bound(factor: float, verdict: set[str]) -> None:
    state = state_of(50)
    statistics = honest(7, 2, seed=3, common=0)
    statistics[0] *= factor
    replies = [reply(k, state, update) for k, update in enumerate(honest(7, 50, seed=0))]
    for each, values in zip(replies, statistics, strict=True):
        each.model["running_mean"] = values.astype(np.float32)
    ratio, bound = by_definition(statistics)[0], RULE.max_deviation
    assert bound is not None
    assert bound < ratio
    assert (ratio > bound * SLACK) == bool(verdict)
    assert left_out(replies, state) == verdict


def test_sketches_keep_the_angles_between_updates() -> None:
    random = np.random.default_rng(0)
    start = {"a": np.zeros((300, 500), np.float32), "b": np.zeros(70_001, np.float32)}
    common = {name: random.standard_normal(array.shape).astype(np.float32) for name, array in start.items()}
    changes = Changes(start, start)
    for share in (-0.7, 0.0, 0.3, 0.9):
        other = {name: random.standard_normal(array.shape).astype(np.float32) for name, array in start.items()}
        mixed = {name: share * common[name] + (1 - share**2) ** 0.5 * other[name] for name in start}
        one, two = changes.sketch(common), changes.sketch(mixed)
        assert one @ two / np.linalg.norm(one) / np.linalg.norm(two) == pytest.approx(share, abs=0.03)
