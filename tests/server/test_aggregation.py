"""The server's side of a round, on real replies of three hospitals."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedmr_med.config import JobConfig
from fedmr_med.server.aggregation import PrototypeAggregator
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.messages import SiteReply
from tests.helpers.errors import raises
from tests.helpers.replies import reply_check
from tests.helpers.small import CLOSED, OPEN, first_replies

SITES = {"bcn": OPEN, "msk": CLOSED, "vienna-dias": OPEN}


@pytest.fixture(scope="module")
def replies(job: JobConfig, state: GlobalState, tmp_path_factory: pytest.TempPathFactory) -> list[SiteReply]:
    return list(first_replies(job, state, tmp_path_factory.mktemp("sites"), SITES).values())


def combined(job: JobConfig, state: GlobalState, replies: list[SiteReply]) -> GlobalState:
    check, round_ = reply_check(job, state), PrototypeAggregator(job, state)
    for reply in replies:
        own = replace(reply, settings=job.digest())
        check.check(own)
        round_.add(own)
    return round_.finish(len(SITES), {})


def test_weights_and_float_buffers_are_the_sample_weighted_mean(
    job: JobConfig, state: GlobalState, replies: list[SiteReply]
) -> None:
    new = combined(job, state, replies)
    total = sum(reply.samples for reply in replies)
    for name, array in state.model.items():
        if np.issubdtype(array.dtype, np.floating):
            mean = sum(reply.model[name].astype(np.float64) * (reply.samples / total) for reply in replies)
            np.testing.assert_allclose(new.model[name], mean, rtol=1e-6, atol=1e-7, err_msg=name)
        assert new.model[name].dtype == array.dtype
        assert new.model[name].shape == array.shape


def test_integer_buffers_take_the_maximum(job: JobConfig, state: GlobalState, replies: list[SiteReply]) -> None:
    counters = [name for name in state.model if name.endswith("num_batches_tracked")]
    assert counters
    more = [replace(r, model=r.model | {counters[0]: np.array(i * 10)}) for i, r in enumerate(replies)]
    assert combined(job, state, more).model[counters[0]] == 20


def test_buffers_of_the_first_site(job: JobConfig, state: GlobalState, replies: list[SiteReply]) -> None:
    first = job.override({"federation": {"buffers": "first"}})
    new = combined(first, state, replies)
    for name in state.model.keys() - state.parameters:
        assert np.array_equal(new.model[name], replies[0].model[name])


def test_prototypes_are_the_weighted_mean_of_those_who_share(
    job: JobConfig, state: GlobalState, replies: list[SiteReply]
) -> None:
    new = combined(job, state, replies)
    assert replies[1].prototypes is None
    sharing = [replies[0].prototypes, replies[2].prototypes]
    counts = sum(p.counts for p in sharing)
    for c in range(8):
        if counts[c]:
            expected = sum(p.sums[c] for p in sharing) / counts[c]
            torch.testing.assert_close(new.prototypes.means[c], expected.float())
        assert new.prototypes.available[c] == bool(counts[c])
    assert new.history.rounds[0].sites["msk"].shared_classes == ()
    assert "NV" in new.history.rounds[0].sites["bcn"].shared_classes


def test_the_records_of_a_round(job: JobConfig, state: GlobalState, replies: list[SiteReply]) -> None:
    round_ = PrototypeAggregator(job, state)
    for reply in replies[:2]:
        round_.add(reply)
    new = round_.finish(3, {"vienna-dias": "NaN"}, seconds=2.0)
    assert new.round == 1
    assert new.accepted == {"bcn": 0, "msk": 0}
    assert new.history.rounds[0].refused == {"vienna-dias": "NaN"}
    evaluation = new.history.evaluations[0]
    assert evaluation.round == 0
    assert evaluation.sites.keys() == {"bcn", "msk"}
    assert evaluation.pooled_sites == ("bcn",), "a site that opted out sends scalars"
    assert evaluation.pooled.samples == replies[0].scores.samples
    assert new.history.best.round == 0


def test_a_round_without_a_reply_is_an_error(job: JobConfig, state: GlobalState) -> None:
    with raises("round.too-few-replies"):
        combined(job, state, [])


def test_fedavg_refuses_prototypes(job: JobConfig, state: GlobalState, replies: list[SiteReply]) -> None:
    fedavg = job.override({"method": {"name": "fedavg"}})
    with raises("wire.unasked", "prototypes"):
        combined(fedavg, state, replies[:1])
    combined(fedavg, state, replies[1:2])
