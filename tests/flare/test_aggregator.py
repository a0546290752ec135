"""The aggregator with real FLARE objects: opt-out, order of arrival, quorum."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fedmr_med.config import JobConfig
from fedmr_med.flare.aggregator import PrototypeAggregator
from fedmr_med.flare.generator import FedMRShareableGenerator, from_learnable, to_learnable
from fedmr_med.server.state import GlobalState
from fedmr_med.wire import codec as wire
from tests.helpers.contexts import peer_context, server_context
from tests.helpers.small import CLOSED, OPEN, initial_state, small_hospital, small_job, task_for

SITES = {"bcn": OPEN, "msk": CLOSED, "vienna-dias": OPEN}


@pytest.fixture(scope="module")
def job() -> JobConfig:
    return small_job(federation={"min_sites": 2})


@pytest.fixture(scope="module")
def state(job: JobConfig) -> GlobalState:
    return initial_state(job)


@pytest.fixture(scope="module")
def replies(job: JobConfig, state: GlobalState, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shareable]:
    folder: Path = tmp_path_factory.mktemp("sites")
    task = task_for(state, job)
    return {
        site: wire.encode_reply(small_hospital(site, job, folder, policy).train(task)) for site, policy in SITES.items()
    }


def opened(job: JobConfig, state: GlobalState) -> PrototypeAggregator:
    aggregator = PrototypeAggregator(job)
    aggregator.open_round(state, num_sites=3)
    return aggregator


def result(aggregator: PrototypeAggregator) -> GlobalState:
    context = peer_context("server")
    return from_learnable(FedMRShareableGenerator().shareable_to_learnable(aggregator.aggregate(context), context))


def test_the_order_of_arrival_changes_nothing(
    job: JobConfig, state: GlobalState, replies: dict[str, Shareable]
) -> None:
    results = []
    for order in itertools.permutations(replies):
        aggregator = opened(job, state)
        for site in order:
            assert aggregator.accept(replies[site], peer_context(site))
        results.append(result(aggregator))
    for other in results[1:]:
        assert all(np.array_equal(other.model[name], results[0].model[name]) for name in other.model)
        assert torch.equal(other.prototypes.means, results[0].prototypes.means)
        assert other.history.rounds[0].sites.keys() == results[0].history.rounds[0].sites.keys()


def test_a_site_that_opted_out_counts_in_the_model_and_not_in_the_prototypes(
    job: JobConfig, state: GlobalState, replies: dict[str, Shareable]
) -> None:
    aggregator, without = opened(job, state), opened(job, state)
    for site, reply in replies.items():
        aggregator.accept(reply, peer_context(site))
        if site != "msk":
            without.accept(reply, peer_context(site))
    full, partial = result(aggregator), result(without)
    assert torch.equal(full.prototypes.means, partial.prototypes.means)
    assert not np.array_equal(full.model["classifier.weight"], partial.model["classifier.weight"])


def test_too_few_usable_replies_leave_the_state_as_it_was(
    job: JobConfig, state: GlobalState, replies: dict[str, Shareable]
) -> None:
    aggregator = opened(job, state)
    aggregator.accept(replies["bcn"], peer_context("bcn"))
    assert result(aggregator) is state


def test_a_new_round_forgets_the_old_one(job: JobConfig, state: GlobalState, replies: dict[str, Shareable]) -> None:
    aggregator = opened(job, state)
    for site in ("bcn", "msk"):
        aggregator.accept(replies[site], peer_context(site))
    after = result(aggregator)
    aggregator.open_round(after, num_sites=3)
    assert not aggregator.accept(replies["bcn"], peer_context("bcn")), "a late reply of the round before"
    assert result(aggregator) is after


def test_a_hospital_that_died_still_counts_among_all_sites(tmp_path: Path, replies: dict[str, Shareable]) -> None:
    """FedDyn divides by the number of all sites; FLARE names only those that are connected."""
    job = small_job("feddyn", federation={"min_sites": 2})
    state = replace(initial_state(job), accepted={"bcn": 0, "msk": 0, "vienna-dias": 0})
    present = ("bcn", "msk")
    context = server_context(tmp_path, connected=present)
    context.set_prop(AppConstants.GLOBAL_MODEL, to_learnable(state), private=True, sticky=True)
    by_event = PrototypeAggregator(job)
    by_event.handle_event(AppEventType.ROUND_STARTED, context)
    by_number = opened(job, state)
    for aggregator in (by_event, by_number):
        for site in present:
            reply = wire.decode_reply(replies[site], site, num_classes=8, feature_size=state.prototypes.means.shape[1])
            without = wire.encode_reply(replace(reply, prototypes=None, payload={}))
            assert aggregator.accept(without, peer_context(site))
    one, other = result(by_event), result(by_number)
    assert all(np.array_equal(one.model[name], other.model[name]) for name in one.model)
