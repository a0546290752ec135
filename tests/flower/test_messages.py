"""Our messages in Flower's records: nothing changes on the way, and what is something else is refused."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedmr_med.flower.messages import META, to_message, to_records
from fedmr_med.wire.codec import Message
from tests.helpers.errors import raises


def test_a_message_comes_out_as_it_went_in() -> None:
    arrays = {
        "half": np.float16([[0.1, -0.0]]),
        "number": np.array(3, dtype=np.int64),
        "mask": np.array([True, False]),
        "large": np.array([2**64 - 1], dtype=np.uint64),
        "none": np.zeros((0, 4), dtype=np.float32),
    }
    meta = {"accepted": {"msk": 1}, "loss": 0.1 + 0.2, "names": ["a", "é"], "nothing": None, "yes": True}
    message = to_message(to_records(Message({"model": arrays, "method": {}}, meta)))
    assert message.meta == meta
    assert message.parts.keys() == {"model", "method"}
    assert message.parts["method"] == {}
    for name, array in arrays.items():
        read = message.parts["model"][name]
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


PLAIN = ConfigRecord({META: "{}"})
SAVED = Array(np.zeros(2)).data


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"model": ArrayRecord()},
        {META: ConfigRecord({META: "[]"})},
        {META: ConfigRecord({META: "{"})},
        {META: PLAIN, "more": MetricRecord({"a": 1})},
        {META: PLAIN, "more": ConfigRecord({"a": 1})},
        {META: PLAIN, "model": ArrayRecord({"w": Array(np.array(["text"]))})},
        {META: PLAIN, "model": ArrayRecord({"w": Array("float64", (2,), "numpy.ndarray", SAVED[:-3])})},
        {META: PLAIN, "model": ArrayRecord({"w": Array("float64", (2,), "pickle", SAVED)})},
    ],
    ids=["empty", "no values", "a list", "no JSON", "metrics", "more values", "text", "cut off", "another form"],
)
def test_records_of_another_form_are_refused(records: dict[str, ArrayRecord | ConfigRecord | MetricRecord]) -> None:
    with raises("wire.form"):
        to_message(RecordDict(records))
