"""A round with float16 on the wire: what it changes in the global model, and that filter and guard let it pass."""

from pathlib import Path

import numpy as np
import pytest
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_constant import ReturnCode

from fedmr_med.config import JobConfig
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.flare.guard import PolicyGuard
from fedmr_med.jobs.benchmark import benchmark_sites
from fedmr_med.jobs.catalog import job_for
from fedmr_med.runner import Federation
from fedmr_med.server.state import GlobalState
from fedmr_med.wire import codec
from fedmr_med.wire.kinds import TRAIN
from tests.helpers.archives import write_mini
from tests.helpers.site_at_work import SHARES_ALL, SiteAtWork
from tests.helpers.small import OPEN, first_replies, initial_state, small_job

SITES = ("bcn", "msk", "vienna-dias")


def worst_error(half: GlobalState, full: GlobalState) -> float:
    """Return the largest relative error in norm of any tensor of the model."""
    errors = []
    for name, expected in full.model.items():
        difference = np.linalg.norm((half.model[name] - expected).astype(np.float64))
        errors.append(difference / max(float(np.linalg.norm(expected)), 1e-30))
    return max(errors)


def test_the_same_replies_give_the_same_model_to_a_thousandth(tmp_path: Path) -> None:
    job = small_job(model={"name": "narrow_resnet"}, train={"updates": 2})
    state = initial_state(job)
    replies = first_replies(job, state, tmp_path, dict.fromkeys(SITES, OPEN)).values()
    after = []
    for halved in (frozenset(), state.parameters):
        collector = TrainExchange(job, state, num_sites=len(SITES))
        for reply in replies:
            collector.offer(reply.site, codec.encode_reply(TRAIN, reply, halved=halved))
        after.append(collector.close())
    full, half = after
    assert 0 < worst_error(half, full) <= 1e-3
    buffers = full.model.keys() - state.parameters
    assert buffers
    assert all(np.array_equal(full.model[name], half.model[name]) for name in buffers)
    assert np.array_equal(full.prototypes.means, half.prototypes.means)


def federation(wire_type: str, data: Path, folder: Path) -> GlobalState:
    changes = {"train.updates": 2, "train.batch_size": 8, "federation.rounds": 1, "federation.wire": wire_type}
    job: JobConfig = job_for("fmnist", "fedmr", split="P5C2", model="small_cnn", changes=changes)
    return Federation(job, benchmark_sites(5, root=data), folder).run()


@pytest.mark.slow
def test_a_whole_round_moves_half_the_bytes(tmp_path: Path) -> None:
    write_mini("fmnist", tmp_path / "data", per_class=10, test_per_class=2)
    full, half = (federation(kind, tmp_path / "data", tmp_path / kind) for kind in ("float32", "float16"))
    assert 0 < worst_error(half, full) <= 1e-3
    for name, site in full.history.rounds[0].sites.items():
        other = half.history.rounds[0].sites[name]
        assert 0.5 <= other.bytes_up / site.bytes_up < 0.55, "the histograms of scores stay as they are"
        assert 0.5 <= other.bytes_down / site.bytes_down < 0.52


@pytest.mark.parametrize("layers", [{"site_filters": (PrototypeFilter(),)}, {"components": (PolicyGuard(),)}])
def test_filter_and_guard_let_a_halved_reply_pass(layers: dict, tmp_path: Path) -> None:
    site = SiteAtWork(tmp_path, SHARES_ALL, job=small_job(federation={"wire": "float16"}), **layers)
    reply = site.answer()
    assert reply.get_return_code() == ReturnCode.OK
    model = from_shareable(reply).data[codec.MODEL].data
    assert {array.dtype for name, array in model.items() if name in site.state().parameters} == {np.dtype(np.float16)}
