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
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.wire import codec
from fedmr_med.wire.messages import SiteReply
from tests.helpers import containers as wire
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
        return reply.with_statistic(PROTOTYPES, replace(reply.prototypes, sums=sums))

    return spoil


def without_a_key(reply: SiteReply) -> SiteReply:
    return replace(reply, model={name: a for name, a in reply.model.items() if name != "conv1.bias"})


def with_counts(reply: Shareable, counts: Callable[[np.ndarray], np.ndarray]) -> Shareable:
    dxo = from_shareable(reply)
    rows = dxo.data[codec.PROTOTYPES].data
    rows["counts"] = counts(rows["counts"])
    return dxo.to_shareable()


ON_THE_REPLY: dict[str, tuple[Callable[[SiteReply], SiteReply], str, str | None]] = {
    "NaN": (spoiled_model(lambda a: filled(a, np.nan)), "wire.not-finite", "classifier.weight"),
    "Inf": (spoiled_model(lambda a: filled(a, np.inf)), "wire.not-finite", "classifier.weight"),
    "NaN in the last array": (
        spoiled_model(lambda a: filled(a, np.nan), "classifier.bias"),
        "wire.not-finite",
        "classifier.bias",
    ),
    "norm of 1e30": (spoiled_model(lambda a: filled(a, 1e30)), "wire.norm", "federation.max_norm"),
    "wrong shape": (spoiled_model(lambda a: a[:1]), "wire.form", "model"),
    "transposed": (spoiled_model(lambda a: np.ascontiguousarray(a.T)), "wire.form", "model"),
    "wrong type": (spoiled_model(lambda a: a.astype(np.float64)), "wire.form", "model"),
    "missing key": (without_a_key, "wire.form", "model"),
    "extra key": (
        lambda reply: replace(reply, model={**reply.model, "x": np.zeros(1, np.float32)}),
        "wire.form",
        "model",
    ),
    "extra payload": (
        lambda reply: replace(reply, payload={**reply.payload, "x": np.zeros(1, np.float32)}),
        "wire.form",
        "payload",
    ),
    "earlier round": (lambda reply: replace(reply, round=-1), "wire.range", "round"),
    "later round": (lambda reply: replace(reply, round=1), "wire.round", None),
    "no images": (lambda reply: replace(reply, samples=0), "wire.range", "samples"),
    "negative images": (lambda reply: replace(reply, samples=-5), "wire.range", "samples"),
    "NaN prototype": (spoiled_sums(np.nan), "wire.not-finite", "prototypes"),
    "prototype of 1e30": (spoiled_sums(1e30), "wire.norm", "federation.max_norm"),
    "10^400 images": (lambda reply: replace(reply, samples=10**400), "wire.range", "samples"),
    "2^63 images": (lambda reply: replace(reply, samples=2**63), "wire.range", "samples"),
    "more images than the job allows": (
        lambda reply: replace(reply, samples=2 * 10**6),
        "wire.range",
        "federation.max_samples",
    ),
    "counts beyond the images": (lambda reply: replace(reply, samples=1), "wire.counts", "prototypes"),
}
ON_THE_WIRE: dict[str, tuple[Callable[[Shareable], Shareable], str, str | None]] = {
    "negative counts": (lambda reply: with_counts(reply, lambda counts: -counts), "wire.range", "prototypes"),
    "counts as fractions": (lambda reply: with_counts(reply, lambda counts: counts / 2), "wire.form", "prototypes"),
    "not a collection": (lambda _: DXO(DataKind.WEIGHTS, data={"x": np.zeros(1)}).to_shareable(), "wire.form", None),
    "empty": (lambda _: Shareable(), "wire.form", None),
    "an object array": (
        lambda reply: _with_member(reply, codec.MODEL, {"conv1.bias": np.array([{}], dtype=object)}),
        "wire.form",
        "model",
    ),
    "no model": (lambda reply: _without_member(reply, codec.MODEL), "wire.form", "model"),
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

    def close(self, bad: list[Shareable]) -> tuple[GlobalState, list[WireError | None]]:
        """Offer the bad replies between the good ones; return the new state and why the bad ones were refused."""
        collector = TrainExchange(self.job, self.state, num_sites=3)
        assert offer(collector, OTHERS[0], wire.encode_reply(self.replies[OTHERS[0]])) is None
        refusals = [offer(collector, BAD, reply) for reply in bad]
        assert offer(collector, OTHERS[1], wire.encode_reply(self.replies[OTHERS[1]])) is None
        return collector.close(), refusals


def offer(collector: TrainExchange, site: str, reply: Shareable) -> WireError | None:
    """Offer a reply as it came over FLARE's wire; return why it does not count, None where it does."""
    try:
        collector.offer(site, wire.to_message(reply))
    except WireError as e:
        collector.refuse(site, str(e))
        return e
    return None


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


def check(a_round: Round, bad: Shareable, code: str, key: str | None) -> None:
    with_bad, (refusal,) = a_round.close([bad])
    without, _ = a_round.close([])
    assert refusal is not None
    assert (refusal.code, refusal.key) == (code, key)
    assert with_bad.history.rounds[0].refused[BAD] == str(refusal)
    assert_same_state(with_bad, without)


def cases(faults: Iterable[str]) -> list[tuple[str, str]]:
    """Return every method with every fault; those of prototypes only with the method that shares them."""
    shared = ("prototype", "counts")
    return [
        (m, fault) for m in METHODS for fault in faults if m == "fedmr" or not any(word in fault for word in shared)
    ]


@pytest.mark.parametrize(("a_round", "fault"), cases(ON_THE_REPLY), indirect=["a_round"])
def test_a_bad_reply_is_refused_whole(a_round: Round, fault: str) -> None:
    spoil, code, key = ON_THE_REPLY[fault]
    check(a_round, wire.encode_reply(spoil(a_round.replies[BAD])), code, key)


@pytest.mark.parametrize(("a_round", "fault"), cases(ON_THE_WIRE), indirect=["a_round"])
def test_a_bad_message_is_refused_whole(a_round: Round, fault: str) -> None:
    spoil, code, key = ON_THE_WIRE[fault]
    check(a_round, spoil(wire.encode_reply(a_round.replies[BAD])), code, key)


def test_what_is_kept_of_a_refusal_is_short_whatever_was_sent(a_round: Round) -> None:
    name = "x" * 100_000
    reply = a_round.replies[BAD]
    dxo = from_shareable(wire.encode_reply(reply))
    dxo.data[name] = np.zeros(1)
    for bad in (wire.encode_reply(replace(reply, model={**reply.model, name: np.zeros(1)})), dxo.to_shareable()):
        state, (refusal,) = a_round.close([bad])
        assert refusal is not None
        assert len(state.history.rounds[0].refused[BAD]) < 600


def test_a_duplicate_is_refused_and_the_first_reply_counts(a_round: Round) -> None:
    good = wire.encode_reply(a_round.replies[BAD])
    twice, refusals = a_round.close([good, good])
    once, _ = a_round.close([good])
    assert [refusal and refusal.code for refusal in refusals] == [None, "wire.duplicate"]
    assert twice.history.rounds[0].refused[BAD] == str(refusals[1])
    assert_same_state(twice, once)


def test_a_bad_reply_does_not_bar_a_good_one(a_round: Round) -> None:
    good = wire.encode_reply(a_round.replies[BAD])
    late = wire.encode_reply(replace(a_round.replies[BAD], round=-1))
    both, refusals = a_round.close([late, good])
    once, _ = a_round.close([good])
    assert [refusal and refusal.code for refusal in refusals] == ["wire.range", None]
    assert_same_state(both, once)


def test_the_good_reply_would_have_changed_the_state(a_round: Round) -> None:
    """So that the comparisons above can fail."""
    with_it, refusals = a_round.close([wire.encode_reply(a_round.replies[BAD])])
    without, _ = a_round.close([])
    assert refusals == [None]
    assert not np.array_equal(with_it.model["classifier.weight"], without.model["classifier.weight"])


def test_the_wire_really_carries_such_replies(a_round: Round) -> None:
    """NaN and infinity survive FLARE's serialisation, so the aggregator is the one to stop them."""
    from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

    nvflare_fobs_initialize()
    spoil, _, _ = ON_THE_REPLY["NaN"]
    sent = fobs.loads(fobs.dumps(wire.encode_reply(spoil(a_round.replies[BAD]))))
    assert np.isnan(from_shareable(sent).data[codec.MODEL].data["classifier.weight"]).any()
