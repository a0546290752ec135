"""Tasks and replies in FLARE's containers, and back."""

from collections.abc import Collection

from nvflare.apis.shareable import Shareable

from fedmr_med.evaluation.metrics import Scores
from fedmr_med.flare.messages import to_message, to_shareable
from fedmr_med.statistics.scores import SCORES
from fedmr_med.wire import codec
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers.replies import read_reply


def encode_task(task: TrainTask, *, halved: Collection[str] = ()) -> Shareable:
    return to_shareable(codec.encode_task(task, halved=halved))


def decode_task(shareable: Shareable) -> TrainTask:
    return codec.decode_task(to_message(shareable))


def encode_reply(reply: SiteReply, *, halved: Collection[str] = ()) -> Shareable:
    return to_shareable(codec.encode_reply(TRAIN, reply, halved=halved))


def decode_reply(shareable: Shareable, site: str, *, num_classes: int, feature_size: int) -> SiteReply:
    return read_reply(TRAIN, to_message(shareable), site, num_classes=num_classes, feature_size=feature_size)


def encode_statistics(reply: SiteReply) -> Shareable:
    return to_shareable(codec.encode_reply(HEAD, reply))


def decode_statistics(shareable: Shareable, site: str, *, num_classes: int, feature_size: int) -> SiteReply:
    return read_reply(HEAD, to_message(shareable), site, num_classes=num_classes, feature_size=feature_size)


def encode_validation(scores: Scores | None) -> Shareable:
    return to_shareable(codec.encode_reply(VALIDATE, SiteReply("").with_statistic(SCORES, scores)), VALIDATE)


def decode_validation(shareable: Shareable, num_classes: int) -> Scores | None:
    return read_reply(VALIDATE, to_message(shareable, VALIDATE), num_classes=num_classes).scores
