"""The wire format of a head exchange: a site's answer to the task ``head``.

One part per statistic, with exactly its fields, in float64; what a site does not share has no part. The head of all
sites is then the head of pooled data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedmr_med.errors import WireError
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.fields import Values
from fedmr_med.statistics.moments import HELD_OUT, KEPT
from fedmr_med.wire.codec import ROUND, Message, whole_number
from fedmr_med.wire.kinds import HEAD
from fedmr_med.wire.totals import STATISTICS


@dataclass(frozen=True)
class StatisticsReply:
    """What a site contributes to the closed-form head.

    Attributes:
        round: completed rounds of the model that made the features.
        values: what it puts in, by statistic; a statistic that it does not share is not there.
        bytes_up: size of the arrays sent.
    """

    site: str
    round: int
    values: Mapping[str, Values] = field(default_factory=dict)
    bytes_up: int = 0


def encode_statistics(reply: StatisticsReply) -> Message:
    """Encode a site's statistics."""
    return Message({name: dict(values) for name, values in reply.values.items()}, {ROUND: reply.round})


def decode_statistics(message: Message, site: str, *, num_classes: int, feature_size: int) -> StatisticsReply:
    """Decode a site's statistics. Whether samples add up to them is seen when they are read.

    Raises:
        WireError: they do not have the agreed form.
    """
    sizes = Sizes(num_classes, feature_size, feature_size)
    layouts = {statistic.name: statistic.layout(sizes) for statistic in STATISTICS[HEAD]}
    if unexpected := message.parts.keys() - layouts.keys():
        name = min(unexpected)
        raise WireError(f"the statistics have an unexpected part {name!r}", code="wire.unasked", key=name)
    if HELD_OUT.name in message.parts and KEPT.name not in message.parts:
        raise WireError("held-out statistics without the others", code="wire.form", key="held-out")
    values = {name: layouts[name].checked(part, name) for name, part in message.parts.items()}
    return StatisticsReply(site, whole_number(message.meta, ROUND), values, bytes_up=message.size)
