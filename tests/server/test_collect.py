"""Collecting replies: opt-out, order of arrival, quorum, late replies."""

import itertools
import threading

import numpy as np
import pytest
import torch

from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.agreement import agreement
from fedmr_med.wire.codec import Message, encode_reply
from fedmr_med.wire.kinds import TRAIN
from tests.helpers.errors import raises
from tests.helpers.small import CLOSED, OPEN, first_replies, initial_state, small_job

SITES = {"bcn": OPEN, "msk": CLOSED, "vienna-dias": OPEN}


@pytest.fixture(scope="module")
def job() -> JobConfig:
    return small_job(federation={"min_sites": 2})


@pytest.fixture(scope="module")
def state(job: JobConfig) -> GlobalState:
    return initial_state(job)


@pytest.fixture(scope="module")
def replies(job: JobConfig, state: GlobalState, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Message]:
    replies = first_replies(job, state, tmp_path_factory.mktemp("sites"), SITES)
    return {site: encode_reply(TRAIN, reply) for site, reply in replies.items()}


@pytest.fixture
def collector(job: JobConfig, state: GlobalState) -> TrainExchange:
    return TrainExchange(job, state, num_sites=3)


def test_the_order_of_arrival_changes_nothing(job: JobConfig, state: GlobalState, replies: dict[str, Message]) -> None:
    results = []
    for order in itertools.permutations(replies):
        collector = TrainExchange(job, state, num_sites=3)
        for site in order:
            collector.offer(site, replies[site])
        results.append(collector.close())
    for other in results[1:]:
        assert all(np.array_equal(other.model[name], results[0].model[name]) for name in other.model)
        assert torch.equal(other.prototypes.means, results[0].prototypes.means)
        assert other.history.rounds[0].sites.keys() == results[0].history.rounds[0].sites.keys()


def test_in_order_gives_the_same_and_refuses_another_order(
    job: JobConfig, state: GlobalState, replies: dict[str, Message], collector: TrainExchange
) -> None:
    streaming = job.override({"federation": {"max_deviation": None}})

    def resent(site: str) -> Message:
        return Message(replies[site].parts, replies[site].meta | agreement(streaming.digest()))

    in_order = TrainExchange(streaming, state, num_sites=3, in_order=True)
    for site in sorted(replies):
        collector.offer(site, replies[site])
        in_order.offer(site, resent(site))
    held, streamed = collector.close(), in_order.close()
    assert all(np.array_equal(held.model[name], streamed.model[name]) for name in held.model)
    in_order = TrainExchange(streaming, state, num_sites=3, in_order=True)
    in_order.offer("msk", resent("msk"))
    with raises("wire.order"):
        in_order.offer("bcn", resent("bcn"))


def test_a_site_that_opted_out_counts_in_the_model_and_not_in_the_prototypes(
    job: JobConfig, state: GlobalState, replies: dict[str, Message], collector: TrainExchange
) -> None:
    without = TrainExchange(job, state, num_sites=3)
    for site, reply in replies.items():
        collector.offer(site, reply)
        if site != "msk":
            without.offer(site, reply)
    full, partial = collector.close(), without.close()
    assert torch.equal(full.prototypes.means, partial.prototypes.means)
    assert not np.array_equal(full.model["classifier.weight"], partial.model["classifier.weight"])


def test_too_few_usable_replies_end_the_round_with_the_reasons(
    replies: dict[str, Message], collector: TrainExchange
) -> None:
    collector.offer("bcn", replies["bcn"])
    collector.refuse("msk", "it answered EXECUTION_EXCEPTION")
    assert not collector.has_quorum
    with pytest.raises(FedMRError, match=r"1 usable replies, .* asks for 2\. Refused: msk: it answered EXEC"):
        collector.close()


def test_a_late_reply_does_not_count(replies: dict[str, Message], collector: TrainExchange) -> None:
    for site in ("bcn", "msk"):
        collector.offer(site, replies[site])
    after = collector.close()
    with raises("wire.late"):
        collector.offer("vienna-dias", replies["vienna-dias"])
    assert set(after.history.rounds[0].sites) == {"bcn", "msk"}


def test_replies_from_many_threads_are_all_taken(
    job: JobConfig, state: GlobalState, replies: dict[str, Message]
) -> None:
    collector = TrainExchange(job, state, num_sites=30)
    names = [f"site-{number:02}" for number in range(30)]
    offers = [threading.Thread(target=collector.offer, args=(name, replies["bcn"])) for name in names]
    refusals = [threading.Thread(target=collector.refuse, args=(f"bad-{number}", "why")) for number in range(30)]
    for thread in (*offers, *refusals):
        thread.start()
    for thread in (*offers, *refusals):
        thread.join()
    counted, refused = collector.status()
    assert counted == names
    assert len(refused) == 30
