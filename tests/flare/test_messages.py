"""The wire format: what comes back, and that nothing malformed passes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.shareable import Shareable
from nvflare.fuel.utils import fobs

from fedmr_med.errors import WireError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.flare.outgoing import same_message
from fedmr_med.prototypes import ClassSums
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.wire import codec
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import SiteReply
from tests.helpers import containers as wire
from tests.helpers.small import initial_state, small_job, task_for

CLASSES, SIZE = 4, 3


def a_reply(prototypes: ClassSums | None = None) -> SiteReply:
    return SiteReply(
        site="bcn",
        round=2,
        samples=40,
        settings="0" * 16,
        model={"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(7)},
        payload={"steps": np.array([3.0], dtype=np.float32)},
        report=SiteReport(seconds=1.5),
        statistics={"scores": Scores(0.5, 0.25, 8, np.eye(CLASSES, dtype=np.int64) * 2)},
        bytes_down=10,
    ).with_statistic(PROTOTYPES, prototypes)


def some_sums() -> ClassSums:
    counts = torch.tensor([0, 5, 0, 7])
    return ClassSums(torch.randn(CLASSES, SIZE).double() * (counts > 0)[:, None], counts)


def through_fobs(shareable: Shareable) -> Shareable:
    return fobs.loads(fobs.dumps(shareable))


@pytest.fixture(autouse=True, scope="module")
def decomposers() -> None:
    from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

    nvflare_fobs_initialize()


def test_a_task_comes_back() -> None:
    job = small_job()
    state = initial_state(job)
    task = wire.decode_task(through_fobs(wire.encode_task(replace(task_for(state, job), method={"c": np.ones(2)}))))
    assert all(np.array_equal(task.model[name], state.model[name]) for name in state.model)
    assert torch.equal(task.prototypes.available, state.prototypes.available)
    assert (task.round, task.rounds, task.chain) == (0, 2, "chain")
    assert task.method["c"].tolist() == [1, 1]
    assert task.bytes > sum(array.nbytes for array in state.model.values())


def test_a_reply_comes_back() -> None:
    sums = some_sums()
    reply = wire.decode_reply(
        through_fobs(wire.encode_reply(a_reply(sums))), "bcn", num_classes=CLASSES, feature_size=SIZE
    )
    assert reply.prototypes.counts.tolist() == [0, 5, 0, 7]
    torch.testing.assert_close(reply.prototypes.sums, sums.sums, atol=1e-6, rtol=1e-6)
    assert (reply.site, reply.round, reply.samples) == ("bcn", 2, 40)
    assert reply.scores.confusion.tolist() == (np.eye(CLASSES) * 2).tolist()
    assert reply.payload["steps"].tolist() == [3]
    assert reply.report == SiteReport(seconds=1.5)
    assert reply.bytes_up == codec.encode_reply(TRAIN, a_reply(sums)).size > 24 + 8 + 4 + CLASSES * (8 + 4 * SIZE)


def test_what_is_not_shared_has_no_trace_in_the_bytes() -> None:
    silent, sharing = (fobs.dumps(wire.encode_reply(a_reply(sums))) for sums in (None, some_sums()))
    for word in (b"prototypes", b"sums", b"counts"):
        assert word in sharing
        assert word not in silent


SPOIL: dict[str, Callable[[Any, Any, Any], object]] = {
    "no model": lambda parts, rows, meta: parts.pop("model"),
    "wrong kind": lambda parts, rows, meta: parts.update(model=DXO(DataKind.APP_DEFINED, data={})),
    "unexpected part": lambda parts, rows, meta: parts.update(gradients=DXO(DataKind.APP_DEFINED, data={})),
    "not an array": lambda parts, rows, meta: parts["model"].data.update(w=[1, 2]),
    "object array": lambda parts, rows, meta: parts["model"].data.update(w=np.array([None])),
    "means instead of sums": lambda parts, rows, meta: rows.update(means=rows.pop("sums")),
    "a class too many": lambda parts, rows, meta: rows.update(counts=np.append(rows["counts"], 0)),
    "a sum without a count": lambda parts, rows, meta: rows.update(counts=np.zeros_like(rows["counts"])),
    "negative count": lambda parts, rows, meta: rows.update(counts=-rows["counts"]),
    "float counts": lambda parts, rows, meta: rows.update(counts=rows["counts"].astype(np.float64)),
    "feature size": lambda parts, rows, meta: rows.update(sums=rows["sums"][:, :2]),
    "no samples": lambda parts, rows, meta: meta.pop("samples"),
    "samples as text": lambda parts, rows, meta: meta.update(samples="40"),
    "scores out of range": lambda parts, rows, meta: parts["scores"].data.update(confusion=np.full((4, 4), -3)),
    "confusion of another size": lambda parts, rows, meta: parts["scores"].data.update(confusion=np.array([[1]])),
    "scores not a mapping": lambda parts, rows, meta: meta.update(scores=0.9),
}


@pytest.mark.parametrize("spoil", SPOIL.values(), ids=SPOIL)
def test_a_malformed_reply_is_refused(spoil: Callable[[Any, Any, Any], object]) -> None:
    dxo = from_shareable(wire.encode_reply(a_reply(some_sums())))
    spoil(dxo.data, dxo.data["prototypes"].data, dxo.meta)
    with pytest.raises(WireError):
        wire.decode_reply(dxo.to_shareable(), "bcn", num_classes=CLASSES, feature_size=SIZE)


@pytest.mark.parametrize("content", [Shareable(), DXO(DataKind.WEIGHTS, data={}).to_shareable()])
def test_what_is_no_collection_is_refused(content: Shareable) -> None:
    for decode in (wire.decode_task, lambda s: wire.decode_reply(s, "a", num_classes=2, feature_size=2)):
        with pytest.raises(WireError):
            decode(content)


def test_scores_come_back_with_or_without_the_matrix() -> None:
    for scores in (None, Scores(0.5, 0.5, 4), Scores(0.5, 0.5, 4, np.array([[1, 1], [1, 1]]))):
        decoded = wire.decode_validation(through_fobs(wire.encode_validation(scores)), 2)
        assert (decoded is None) == (scores is None)
        if scores is not None:
            assert decoded.samples == 4
            assert (decoded.confusion is None) == (scores.confusion is None)


def test_a_validation_of_another_kind_is_refused() -> None:
    with pytest.raises(WireError):
        wire.decode_validation(wire.to_shareable(Message({"model": {}}), "submit_model"), 2)


def test_half_of_the_bytes_with_float16_and_the_same_message_when_sent_on() -> None:
    job = small_job(federation={"wire": "float16"})
    state = initial_state(job)
    halved = job.federation.halved(state.parameters)
    plain, half = (
        wire.decode_task(through_fobs(wire.encode_task(task_for(state, job), halved=names)))
        for names in (frozenset(), halved)
    )
    parameters = sum(state.model[name].nbytes for name in halved)
    assert plain.bytes - half.bytes == parameters / 2
    for name, array in half.model.items():
        assert array.dtype == state.model[name].dtype
        assert np.linalg.norm(array - state.model[name]) <= 1e-3 * np.linalg.norm(state.model[name])
    reply = SiteReply("bcn", 0, 4, "0" * 16, half.model)
    sent = wire.encode_reply(reply, halved=halved)
    read = wire.decode_reply(through_fobs(sent), "bcn", num_classes=8, feature_size=128)
    assert same_message(wire.encode_reply(read, halved=halved), sent), "the guard reads and writes it again"
    assert all(np.array_equal(read.model[name], half.model[name]) for name in half.model)


@pytest.mark.parametrize("exponents", [{}, {"w": 1.5}, {"w": 1, "n": 1}, [1]])
def test_float16_without_its_exponents_is_refused(exponents: object) -> None:
    dxo = from_shareable(wire.encode_reply(a_reply(), halved={"w"}))
    dxo.meta["exponents"] = exponents
    with pytest.raises(WireError):
        wire.decode_reply(dxo.to_shareable(), "bcn", num_classes=CLASSES, feature_size=SIZE)
