"""The statistics of a head exchange on the wire: exact, and refused whole if anything is wrong."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedmr_med.arrays import Arrays
from fedmr_med.errors import WireError
from fedmr_med.statistics.head import HeadStatistics
from fedmr_med.wire.codec import Message
from fedmr_med.wire.statistics import HELD_OUT, KEPT, HeadReply, decode_statistics, encode_statistics

CLASSES, SIZE = 5, 4


def statistics(seed: int, labels: list[int]) -> HeadStatistics:
    features = torch.randn(len(labels), SIZE, generator=torch.Generator().manual_seed(seed))
    return HeadStatistics.from_features(features, torch.tensor(labels), CLASSES)


def a_message() -> Message:
    reply = HeadReply("bcn", 7, statistics(0, [1] * 9 + [3] * 8), statistics(1, [1, 1, 3]))
    return encode_statistics(reply)


def decoded(message: Message) -> HeadReply:
    return decode_statistics(message, "bcn", num_classes=CLASSES, feature_size=SIZE)


def test_statistics_come_back_to_the_bit() -> None:
    sent, read = statistics(0, [1] * 9 + [3] * 8), decoded(a_message())
    assert (read.site, read.round) == ("bcn", 7)
    assert torch.equal(read.kept.sums.sums, sent.sums.sums)
    assert torch.equal(read.kept.sums.counts, sent.sums.counts)
    torch.testing.assert_close(read.kept.scatter, (sent.scatter + sent.scatter.T) / 2, rtol=1e-14, atol=1e-14)
    assert read.held_out.sums.counts.tolist() == [0, 2, 0, 1, 0]
    again = encode_statistics(read)
    assert all(
        np.array_equal(again.parts[part][name], array)
        for part, arrays in a_message().parts.items()
        for name, array in arrays.items()
    ), "filter and guard read it and write it again"


def test_what_is_not_shared_has_no_part() -> None:
    assert encode_statistics(HeadReply("msk", 7)).parts == {}
    assert decoded(encode_statistics(HeadReply("msk", 7))).kept is None


def test_without_scatter_the_sums_alone_travel() -> None:
    sums = HeadStatistics.from_sums(statistics(0, [1] * 9 + [3] * 8).sums)
    message = encode_statistics(HeadReply("msk", 7, sums))
    assert message.parts[KEPT].keys() == {"classes", "counts", "sums"}
    read = decoded(message).kept
    assert torch.equal(read.sums.sums, sums.sums.sums)
    assert read.freedom == 0


SPOILED: dict[str, Callable[[dict[str, Arrays]], object]] = {
    "an unexpected part": lambda parts: parts.update(other={}),
    "held-out alone": lambda parts: parts.pop(KEPT),
    "a key less": lambda parts: parts[KEPT].pop("counts"),
    "another class": lambda parts: parts[KEPT].update(classes=np.array([1, CLASSES])),
    "a class twice": lambda parts: parts[KEPT].update(classes=np.array([1, 1])),
    "no count": lambda parts: parts[KEPT].update(counts=np.array([9, 0])),
    "counts as floats": lambda parts: parts[KEPT].update(counts=np.array([9.0, 8.0])),
    "a huge count": lambda parts: parts[KEPT].update(counts=np.array([9, 2**62])),
    "sums of another size": lambda parts: parts[KEPT].update(sums=parts[KEPT]["sums"][:, :2]),
    "float32 sums": lambda parts: parts[KEPT].update(sums=parts[KEPT]["sums"].astype(np.float32)),
    "a whole matrix": lambda parts: parts[KEPT].update(scatter=np.zeros((SIZE, SIZE))),
    "NaN": lambda parts: parts[HELD_OUT].update(sums=parts[HELD_OUT]["sums"] * np.nan),
    "infinite scatter": lambda parts: parts[KEPT].update(scatter=parts[KEPT]["scatter"] + np.inf),
    "a negative variance": lambda parts: parts[KEPT].update(scatter=-parts[KEPT]["scatter"]),
}


@pytest.mark.parametrize("fault", SPOILED)
def test_malformed_statistics_are_refused(fault: str) -> None:
    message = a_message()
    SPOILED[fault](message.parts)
    with pytest.raises(WireError):
        decoded(message)
