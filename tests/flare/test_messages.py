"""The wire format: what comes back, and that nothing malformed passes."""

from dataclasses import replace
from pathlib import Path

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
        prototypes=prototypes,
        payload={"steps": np.array([3.0], dtype=np.float32)},
        scores=Scores(0.5, 0.25, 8, np.eye(CLASSES, dtype=np.int64) * 2),
        report=SiteReport(seconds=1.5),
        bytes_down=10,
    )


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


def spoiled(change: str) -> Shareable:
    dxo = from_shareable(wire.encode_reply(a_reply(some_sums())))
    rows = dxo.data["prototypes"].data
    if change == "no model":
        del dxo.data["model"]
    elif change == "wrong kind":
        dxo.data["model"] = DXO(DataKind.APP_DEFINED, data={})
    elif change == "unexpected part":
        dxo.data["gradients"] = DXO(DataKind.APP_DEFINED, data={})
    elif change == "not an array":
        dxo.data["model"].data["w"] = [1, 2]
    elif change == "object array":
        dxo.data["model"].data["w"] = np.array([None])
    elif change == "means instead of sums":
        rows["means"] = rows.pop("sums")
    elif change == "a class too many":
        rows["counts"] = np.append(rows["counts"], 0)
    elif change == "a sum without a count":
        rows["counts"] = np.zeros_like(rows["counts"])
    elif change == "negative count":
        rows["counts"] = -rows["counts"]
    elif change == "float counts":
        rows["counts"] = rows["counts"].astype(np.float64)
    elif change == "feature size":
        rows["sums"] = rows["sums"][:, :2]
    elif change == "no samples":
        del dxo.meta["samples"]
    elif change == "samples as text":
        dxo.meta["samples"] = "40"
    elif change == "scores out of range":
        dxo.data["scores"].data["confusion"] = dxo.data["scores"].data["confusion"] - 3
    elif change == "confusion of another size":
        dxo.data["scores"].data["confusion"] = np.array([[1]])
    elif change == "scores not a mapping":
        dxo.meta["scores"] = 0.9
    return dxo.to_shareable()


@pytest.mark.parametrize(
    "change",
    [
        "no model",
        "wrong kind",
        "unexpected part",
        "not an array",
        "object array",
        "means instead of sums",
        "a class too many",
        "a sum without a count",
        "negative count",
        "float counts",
        "feature size",
        "no samples",
        "samples as text",
        "scores out of range",
        "confusion of another size",
        "scores not a mapping",
    ],
)
def test_a_malformed_reply_is_refused(change: str) -> None:
    with pytest.raises(WireError):
        wire.decode_reply(spoiled(change), "bcn", num_classes=CLASSES, feature_size=SIZE)


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


def test_a_validation_of_another_kind_is_refused(tmp_path: Path) -> None:
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
