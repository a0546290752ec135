"""A reply is read strictly: what is not of the agreed type and size is refused by name."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmr_med import __version__
from fedmr_med.arrays import forms_of
from fedmr_med.errors import WireError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.prototypes import Prototypes
from fedmr_med.statistics.scores import SCORES
from fedmr_med.wire.agreement import WIRE_VERSION
from fedmr_med.wire.codec import Message, decode_task, encode_reply, encode_task
from fedmr_med.wire.kinds import SURVEY, TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers.errors import raises
from tests.helpers.replies import form_with, read_reply

CLASSES, SIZE = 2, 3
SETTINGS = "0123456789abcdef"
REPLY = SiteReply(
    site="bcn",
    round=2,
    samples=40,
    settings=SETTINGS,
    model={"w": np.ones(2, dtype=np.float32)},
    statistics={"scores": Scores(0.5, 0.25, 8, np.array([[1, 2], [3, 2]]))},
    report=SiteReport(seconds=1.5, terms={"classification": 0.5}),
    bytes_down=10,
)
TASK = TrainTask({}, Prototypes.none(CLASSES, SIZE), {}, 0, 1, "chain", SETTINGS)


def decoded(**changes: Any) -> SiteReply:
    message = encode_reply(TRAIN, REPLY)
    return read_reply(
        TRAIN, Message(message.parts, message.meta | changes), "bcn", num_classes=CLASSES, feature_size=SIZE
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"wire": WIRE_VERSION + 1}, f"wire format {WIRE_VERSION + 1}.* this is {__version__}"),
        ({"wire": True}, "which version"),
        ({"wire": None}, "which version"),
        ({"toolkit": "99.1.2"}, f"fedmr_med 99.1.2 .* this is {__version__}"),
        ({"toolkit": "a patient's name"}, "which version"),
        ({"settings": "xyz"}, "which settings"),
        ({"settings": None}, "which settings"),
    ],
)
def test_other_versions_are_refused_with_both(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decoded(**change)
    task = encode_task(TASK)
    with pytest.raises(WireError, match=reason):
        decode_task(Message(task.parts, task.meta | change))


@pytest.mark.parametrize("accepted", [None, [], "bcn", {"bcn": "1"}, {"bcn": True}, {"bcn": 1, "msk": 1.0}])
def test_a_task_says_the_last_accepted_rounds_as_whole_numbers_by_site(accepted: object) -> None:
    task = encode_task(replace(TASK, accepted={"bcn": 1}))
    assert decode_task(task).accepted == {"bcn": 1}
    with raises("wire.form", "accepted"):
        decode_task(Message(task.parts, task.meta | {"accepted": accepted}))


@pytest.mark.parametrize("other", ["x" * 101, "../other", "", 7, None])
def test_the_id_of_a_chain_is_a_name_of_up_to_a_hundred_characters(other: object) -> None:
    task = encode_task(replace(TASK, chain="x" * 100))
    assert decode_task(task).chain == "x" * 100
    with raises("wire.form", "chain"):
        decode_task(Message(task.parts, task.meta | {"chain": other}))


@pytest.mark.parametrize("kind", [SURVEY, VALIDATE])
def test_a_reply_outside_a_round_is_read_as_it_was_written(kind: str) -> None:
    reply = SiteReply("bcn")
    assert read_reply(kind, encode_reply(kind, reply), "bcn", num_classes=CLASSES) == reply


def test_another_patch_of_the_same_version_is_read() -> None:
    assert decoded(toolkit=".".join([*__version__.split(".")[:2], "77"])).settings == SETTINGS


def test_a_reply_made_with_other_settings_is_refused_with_both_digests() -> None:
    form = form_with(("a", "b"), settings="f" * 16, model=forms_of(REPLY.model))
    with pytest.raises(
        WireError, match=f"other settings of the job \\({SETTINGS}\\) than there are here \\({'f' * 16}\\)"
    ):
        form.check(REPLY)
    replace(form, settings=SETTINGS).check(REPLY)


def test_the_reply_itself_is_read() -> None:
    reply = decoded()
    assert reply.report == REPLY.report
    assert reply.scores.confusion.tolist() == [[1, 2], [3, 2]]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *((value, "wire.form") for value in (True, 1.0, "1", None, np.int64(3))),
        *((value, "wire.range") for value in (-1, 10**400)),
    ],
)
@pytest.mark.parametrize("name", ["round", "samples", "bytes_down"])
def test_whole_numbers_are_whole_numbers(name: str, value: object, code: str) -> None:
    with raises(code, name):
        decoded(**{name: value})


@pytest.mark.parametrize(
    "report",
    [
        [],
        "text",
        {"secret": 1},
        {"seconds": "1"},
        {"seconds": [1.0, 2.0]},
        {"seconds": math.nan},
        {"terms": {"a": math.nan}},
        {"terms": {"a": -math.inf}},
        {"terms": {"a": "text"}},
        {"terms": {"a": 10**400}},
        {"terms": {"a": 1e13}},
        {"terms": {"a": True}},
        {"terms": {1: 1.0}},
        {"terms": dict.fromkeys("abcdefghi", 0.1)},
        {"images_total": np.ones(4)},
        {"images_total": 10**19},
    ],
)
def test_a_report_with_anything_else_is_refused(report: object) -> None:
    with raises("wire.form", "report"):
        decoded(report=report)


def with_scalars(change: Any) -> SiteReply:
    message = encode_reply(TRAIN, REPLY.with_statistic(SCORES, Scores(0.5, 0.25, 8)))
    scores = message.meta["scores"] | change if isinstance(change, dict) else change
    meta = message.meta | {"scores": scores}
    return read_reply(TRAIN, Message(message.parts, meta), "bcn", num_classes=CLASSES, feature_size=SIZE)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"accuracy": math.nan}, ("wire.range", "scores")),
        ({"accuracy": "0.5"}, ("wire.range", "scores")),
        ({"mean_recall": 1.5}, ("wire.range", "scores")),
        ({"samples": 10**15}, ("wire.range", "samples")),
        ({"more": 1}, ("wire.form", "scores")),
        ({"withheld": [0]}, ("wire.form", "scores")),
        (0.9, ("wire.form", "scores")),
    ],
)
def test_scalars_are_scalars(change: Any, fault: tuple[str, ...]) -> None:
    assert with_scalars({}).scores == Scores(0.5, 0.25, 8)
    with raises(*fault):
        with_scalars(change)


def with_matrix(rows: Any, **meta: Any) -> SiteReply:
    message = encode_reply(TRAIN, REPLY)
    message.parts["scores"]["confusion"] = np.asarray(rows)
    return read_reply(TRAIN, Message(message.parts, message.meta | meta), "bcn", num_classes=CLASSES, feature_size=SIZE)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([[10**15, 0], [0, 0]], "wire.range"),
        ([[-1, 4], [3, 2]], "wire.range"),
        ([[True, True], [True, True]], "wire.form"),
        ([[1.0, 2], [3, 2]], "wire.form"),
        ([[1, 2]], "wire.form"),
    ],
)
def test_a_matrix_is_counts(rows: object, code: str) -> None:
    with raises(code, "scores"):
        with_matrix(rows)


@pytest.mark.parametrize("scores", [None, {}, {"withheld": [0], "samples": 8}])
def test_a_matrix_says_which_classes_are_held_back_and_nothing_else(scores: object) -> None:
    with raises("wire.form", "scores"):
        decoded(scores=scores)


@pytest.mark.parametrize("classes", [[-1], [2], [0, 0], [1, 0], [True], [0.0], ["0"], 0, None, (0,)])
def test_classes_held_back_are_known_and_in_order(classes: object) -> None:
    with pytest.raises(WireError):
        with_matrix([[0, 0], [0, 2]], scores={"withheld": classes})


def test_a_class_that_is_held_back_has_no_counts() -> None:
    rows = [[0, 0], [3, 2]]
    assert with_matrix(rows, scores={"withheld": [0]}).scores.withheld == (0,)
    with raises("wire.counts", "withheld"):
        with_matrix(rows, scores={"withheld": [1]})
    assert with_matrix(np.zeros((2, 2), np.int64), scores={"withheld": [0, 1]}).scores is None
