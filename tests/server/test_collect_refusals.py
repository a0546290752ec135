"""A bad contribution is refused whole: the global state is, bit for bit, the one without that hospital."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.shareable import Shareable
from nvflare.fuel.utils import fobs

from fedmr_med.errors import WireError
from fedmr_med.flare import messages as wire
from fedmr_med.server.collect import ReplyCollector
from fedmr_med.server.state import GlobalState
from fedmr_med.wire import codec
from fedmr_med.wire.messages import SiteReply
from tests.helpers.small import OPEN, first_replies, initial_state, small_job

BAD, OTHERS = "msk", ("bcn", "vienna-dias")
METHODS = ("fedmr", "feddyn", "fednova")


def filled(array: np.ndarray, value: float) -> np.ndarray:
    """Return the array with one entry replaced."""
    array = array.copy()
    array.flat[0] = value
    return array


def spoiled_model(change: Callable[[np.ndarray], np.ndarray], name: str = "classifier.weight") -> Callable:
    return lambda reply: replace(reply, model={**reply.model, name: change(reply.model[name])})


def spoiled_sums(value: float) -> Callable[[SiteReply], SiteReply]:
    def spoil(reply: SiteReply) -> SiteReply:
        sums = reply.prototypes.sums.clone()
        sums[reply.prototypes.counts.nonzero()[0], 0] = value
        return replace(reply, prototypes=replace(reply.prototypes, sums=sums))

    return spoil


def without_a_key(reply: SiteReply) -> SiteReply:
    return replace(reply, model={name: a for name, a in reply.model.items() if name != "conv1.bias"})


def with_counts(reply: Shareable, counts: Callable[[np.ndarray], np.ndarray]) -> Shareable:
    dxo = from_shareable(reply)
    rows = dxo.data[codec.PROTOTYPES].data
    rows["counts"] = counts(rows["counts"])
    return dxo.to_shareable()


ON_THE_REPLY: dict[str, tuple[Callable[[SiteReply], SiteReply], str]] = {
    "NaN": (spoiled_model(lambda a: filled(a, np.nan)), "NaN or infinite"),
    "Inf": (spoiled_model(lambda a: filled(a, np.inf)), "NaN or infinite"),
    "NaN in the last array": (spoiled_model(lambda a: filled(a, np.nan), "classifier.bias"), "NaN or infinite"),
    "norm of 1e30": (spoiled_model(lambda a: filled(a, 1e30)), "norm 1e+30"),
    "wrong shape": (spoiled_model(lambda a: a[:1]), "of shape"),
    "transposed": (spoiled_model(lambda a: np.ascontiguousarray(a.T)), "of shape"),
    "wrong type": (spoiled_model(lambda a: a.astype(np.float64)), "of type"),
    "missing key": (without_a_key, "lacks 'conv1.bias'"),
    "extra key": (lambda reply: replace(reply, model={**reply.model, "x": np.zeros(1, np.float32)}), "unexpected 'x'"),
    "extra payload": (lambda reply: replace(reply, payload={**reply.payload, "x": np.zeros(1, np.float32)}), "'x'"),
    "earlier round": (lambda reply: replace(reply, round=-1), "'round' is not between 0"),
    "later round": (lambda reply: replace(reply, round=1), "the reply is for round 2, not 1"),
    "no images": (lambda reply: replace(reply, samples=0), "training images is 0"),
    "negative images": (lambda reply: replace(reply, samples=-5), "'samples' is not between 0"),
    "NaN prototype": (spoiled_sums(np.nan), "NaN or infinite"),
    "prototype of 1e30": (spoiled_sums(1e30), "norm"),
    "10^400 images": (lambda reply: replace(reply, samples=10**400), "'samples' is not between 0"),
    "2^63 images": (lambda reply: replace(reply, samples=2**63), "'samples' is not between 0"),
    "more images than the job allows": (
        lambda reply: replace(reply, samples=2 * 10**6),
        "over federation.max_samples 1000000",
    ),
    "counts beyond the images": (lambda reply: replace(reply, samples=1), "exceed the training images"),
}
ON_THE_WIRE: dict[str, tuple[Callable[[Shareable], Shareable], str]] = {
    "negative counts": (lambda reply: with_counts(reply, lambda counts: -counts), "count below one"),
    "counts as fractions": (lambda reply: with_counts(reply, lambda counts: counts / 2), "agreed types"),
    "not a collection": (lambda _: DXO(DataKind.WEIGHTS, data={"x": np.zeros(1)}).to_shareable(), "COLLECTION"),
    "empty": (lambda _: Shareable(), "not a DXO"),
    "an object array": (
        lambda reply: _with_member(reply, codec.MODEL, {"conv1.bias": np.array([{}], dtype=object)}),
        "not a numeric array",
    ),
    "no model": (lambda reply: _without_member(reply, codec.MODEL), "no 'model' part"),
}


def _with_member(reply: Shareable, name: str, data: dict) -> Shareable:
    dxo = from_shareable(reply)
    dxo.data[name] = DXO(dxo.data[name].data_kind, data={**dxo.data[name].data, **data})
    return dxo.to_shareable()


def _without_member(reply: Shareable, name: str) -> Shareable:
    dxo = from_shareable(reply)
    del dxo.data[name]
    return dxo.to_shareable()


class Round:
    """Real replies of three hospitals to the first task of a method."""

    def __init__(self, method: str, folder: Path):
        self.job = small_job(method, federation={"min_sites": 2})
        self.state = initial_state(self.job)
        self.replies = first_replies(self.job, self.state, folder, dict.fromkeys((BAD, *OTHERS), OPEN))

    def close(self, bad: list[Shareable]) -> tuple[GlobalState, list[bool]]:
        """Offer the bad replies between the good ones; return the new state and what became of the bad ones."""
        collector = ReplyCollector(self.job, self.state, num_sites=3)
        assert offered(collector, OTHERS[0], wire.encode_reply(self.replies[OTHERS[0]]))
        taken = [offered(collector, BAD, reply) for reply in bad]
        assert offered(collector, OTHERS[1], wire.encode_reply(self.replies[OTHERS[1]]))
        return collector.close(), taken


def offered(collector: ReplyCollector, site: str, reply: Shareable) -> bool:
    """Offer a reply as it came over FLARE's wire; return whether it counts."""
    try:
        collector.offer(site, wire.to_message(reply))
    except WireError as e:
        collector.refuse(site, str(e))
        return False
    return True


@pytest.fixture(scope="module", params=METHODS)
def a_round(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Round:
    return Round(request.param, tmp_path_factory.mktemp(request.param))


def assert_same_state(a: GlobalState, b: GlobalState) -> None:
    """Compare all that goes on to the next round, bit for bit."""
    assert a.model.keys() == b.model.keys()
    assert all(np.array_equal(a.model[name], b.model[name]) for name in a.model)
    assert a.method.keys() == b.method.keys()
    assert all(np.array_equal(a.method[name], b.method[name]) for name in a.method)
    assert torch.equal(a.prototypes.means, b.prototypes.means)
    assert torch.equal(a.prototypes.available, b.prototypes.available)
    assert a.accepted == b.accepted
    assert a.history.evaluations == b.history.evaluations


def check(a_round: Round, bad: Shareable, reason: str) -> None:
    with_bad, (taken,) = a_round.close([bad])
    without, _ = a_round.close([])
    assert not taken
    assert reason in with_bad.history.rounds[0].refused[BAD]
    assert_same_state(with_bad, without)


def cases(faults: Iterable[str]) -> list[tuple[str, str]]:
    """Return every method with every fault; those of prototypes only with the method that shares them."""
    shared = ("prototype", "counts")
    return [
        (m, fault) for m in METHODS for fault in faults if m == "fedmr" or not any(word in fault for word in shared)
    ]


@pytest.mark.parametrize(("a_round", "fault"), cases(ON_THE_REPLY), indirect=["a_round"])
def test_a_bad_reply_is_refused_whole(a_round: Round, fault: str) -> None:
    spoil, reason = ON_THE_REPLY[fault]
    check(a_round, wire.encode_reply(spoil(a_round.replies[BAD])), reason)


@pytest.mark.parametrize(("a_round", "fault"), cases(ON_THE_WIRE), indirect=["a_round"])
def test_a_bad_message_is_refused_whole(a_round: Round, fault: str) -> None:
    spoil, reason = ON_THE_WIRE[fault]
    check(a_round, spoil(wire.encode_reply(a_round.replies[BAD])), reason)


def test_a_duplicate_is_refused_and_the_first_reply_counts(a_round: Round) -> None:
    good = wire.encode_reply(a_round.replies[BAD])
    twice, taken = a_round.close([good, good])
    once, _ = a_round.close([good])
    assert taken == [True, False]
    assert "a second reply in the same round" in twice.history.rounds[0].refused[BAD]
    assert_same_state(twice, once)


def test_a_bad_reply_does_not_bar_a_good_one(a_round: Round) -> None:
    good = wire.encode_reply(a_round.replies[BAD])
    late = wire.encode_reply(replace(a_round.replies[BAD], round=-1))
    both, taken = a_round.close([late, good])
    once, _ = a_round.close([good])
    assert taken == [False, True]
    assert_same_state(both, once)


def test_the_good_reply_would_have_changed_the_state(a_round: Round) -> None:
    """So that the comparisons above can fail."""
    with_it, taken = a_round.close([wire.encode_reply(a_round.replies[BAD])])
    without, _ = a_round.close([])
    assert taken == [True]
    assert not np.array_equal(with_it.model["classifier.weight"], without.model["classifier.weight"])


def test_the_wire_really_carries_such_replies(a_round: Round) -> None:
    """NaN and infinity survive FLARE's serialisation, so the aggregator is the one to stop them."""
    from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

    nvflare_fobs_initialize()
    spoil, _ = ON_THE_REPLY["NaN"]
    sent = fobs.loads(fobs.dumps(wire.encode_reply(spoil(a_round.replies[BAD]))))
    assert np.isnan(from_shareable(sent).data[codec.MODEL].data["classifier.weight"]).any()
