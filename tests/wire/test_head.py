"""The statistics of a head exchange on the wire: exact, and refused whole if anything is wrong."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedmr_med.arrays import Arrays
from fedmr_med.errors import WireError
from fedmr_med.statistics.base import Origin
from fedmr_med.statistics.fields import add
from fedmr_med.statistics.head import HeadStatistics
from fedmr_med.statistics.moments import HELD_OUT, KEPT, MEANS
from fedmr_med.wire.codec import Message, encode_reply
from fedmr_med.wire.kinds import HEAD
from fedmr_med.wire.messages import SiteReply
from tests.helpers.errors import raises
from tests.helpers.replies import read_reply

CLASSES, SIZE = 5, 4


def statistics(seed: int, labels: list[int]) -> HeadStatistics:
    features = torch.randn(len(labels), SIZE, generator=torch.Generator().manual_seed(seed))
    return HeadStatistics.from_features(features, torch.tensor(labels), CLASSES)


def a_message() -> Message:
    kept, held_out = statistics(0, [1] * 9 + [3] * 8), statistics(1, [1, 1, 3])
    values = {"kept": KEPT.values(kept), "held_out": HELD_OUT.values(held_out), "means": MEANS.values(kept.sums)}
    return encode_reply(HEAD, SiteReply("bcn", 7, statistics=values))


def decoded(message: Message) -> SiteReply:
    return read_reply(HEAD, message, "bcn", num_classes=CLASSES, feature_size=SIZE)


def test_statistics_come_back_to_the_bit() -> None:
    sent, reply = statistics(0, [1] * 9 + [3] * 8), decoded(a_message())
    assert (reply.site, reply.round) == ("bcn", 7)
    read = KEPT.read(reply.statistics["kept"])
    assert read is not None
    assert torch.equal(read.sums.sums, sent.sums.sums)
    assert torch.equal(read.sums.counts, sent.sums.counts)
    torch.testing.assert_close(read.scatter, sent.scatter, rtol=1e-13, atol=1e-13)
    assert reply.statistics["held_out"]["counts"].tolist() == [0, 2, 0, 1, 0]
    again = encode_reply(HEAD, reply)
    assert all(
        np.array_equal(again.parts[part][name], array)
        for part, arrays in a_message().parts.items()
        for name, array in arrays.items()
    ), "the guard reads it and writes it again"


def test_the_sum_of_two_sites_reads_as_the_statistics_of_all_their_samples() -> None:
    one, other = statistics(0, [1] * 9 + [3] * 8), statistics(1, [1, 1, 3, 4])
    read, both = KEPT.read(add(KEPT.values(one), KEPT.values(other)), Origin(2)), one + other
    assert read is not None
    torch.testing.assert_close(read.scatter, both.scatter, rtol=1e-12, atol=1e-12)
    assert (read.freedom, read.sums.counts.tolist()) == (both.freedom, both.sums.counts.tolist())


def test_what_is_not_shared_has_no_part() -> None:
    assert encode_reply(HEAD, SiteReply("msk", 7)).parts == {}
    assert decoded(encode_reply(HEAD, SiteReply("msk", 7))).statistics == {}


SPOILED: dict[str, Callable[[dict[str, Arrays]], object]] = {
    "an unexpected part": lambda parts: parts.update(other={}),
    "held-out alone": lambda parts: parts.pop("kept"),
    "a key less": lambda parts: parts["kept"].pop("counts"),
    "scatter of means": lambda parts: parts["means"].update(moments=parts["kept"]["moments"]),
    "a class more": lambda parts: parts["kept"].update(counts=np.append(parts["kept"]["counts"], 0)),
    "counts as floats": lambda parts: parts["kept"].update(counts=parts["kept"]["counts"].astype(float)),
    "a huge count": lambda parts: parts["kept"].update(counts=parts["kept"]["counts"] + 2**62),
    "a negative count": lambda parts: parts["means"].update(counts=-parts["means"]["counts"]),
    "sums of another size": lambda parts: parts["kept"].update(sums=parts["kept"]["sums"][:, :2]),
    "float32 sums": lambda parts: parts["kept"].update(sums=parts["kept"]["sums"].astype(np.float32)),
    "a whole matrix": lambda parts: parts["kept"].update(moments=np.zeros((SIZE, SIZE))),
    "NaN": lambda parts: parts["held_out"].update(sums=parts["held_out"]["sums"] * np.nan),
    "infinite moments": lambda parts: parts["kept"].update(moments=parts["kept"]["moments"] + np.inf),
}


@pytest.mark.parametrize("fault", SPOILED)
def test_malformed_statistics_are_refused(fault: str) -> None:
    message = a_message()
    SPOILED[fault](message.parts)
    with pytest.raises(WireError):
        decoded(message)


def test_moments_and_sums_that_no_samples_have_are_not_read() -> None:
    kept = dict(a_message().parts["kept"])
    with raises("wire.range", "kept"):
        KEPT.read(kept | {"moments": -kept["moments"]})
    with raises("wire.counts", "kept"):
        KEPT.read(kept | {"counts": np.where(kept["counts"] == 9, 0, kept["counts"])})
