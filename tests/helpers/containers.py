"""Tasks and replies in FLARE's containers, and back."""

from collections.abc import Collection

from nvflare.apis.shareable import Shareable

from fedmr_med.evaluation.metrics import Scores
from fedmr_med.flare.messages import to_message, to_shareable
from fedmr_med.wire import codec
from fedmr_med.wire.kinds import VALIDATE
from fedmr_med.wire.messages import SiteReply, StatisticsReply, TrainTask


def encode_task(task: TrainTask, *, halved: Collection[str] = ()) -> Shareable:
    return to_shareable(codec.encode_task(task, halved=halved))


def decode_task(shareable: Shareable) -> TrainTask:
    return codec.decode_task(to_message(shareable))


def encode_reply(reply: SiteReply, *, halved: Collection[str] = ()) -> Shareable:
    return to_shareable(codec.encode_reply(reply, halved=halved))


def decode_reply(shareable: Shareable, site: str, *, num_classes: int, feature_size: int) -> SiteReply:
    return codec.decode_reply(to_message(shareable), site, num_classes=num_classes, feature_size=feature_size)


def encode_statistics(reply: StatisticsReply) -> Shareable:
    return to_shareable(codec.encode_statistics(reply))


def decode_statistics(shareable: Shareable, site: str, *, num_classes: int, feature_size: int) -> StatisticsReply:
    message = to_message(shareable)
    return codec.decode_statistics(message, site, num_classes=num_classes, feature_size=feature_size)


def encode_validation(scores: Scores | None) -> Shareable:
    return to_shareable(codec.encode_validation(scores), VALIDATE)


def decode_validation(shareable: Shareable, num_classes: int) -> Scores | None:
    return codec.decode_validation(to_message(shareable, VALIDATE), num_classes)
