"""Replies as messages and back, and the forms of made-up jobs."""

from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.models.reply_forms import form_of
from fedmr_med.server.checks import ReplyCheck
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.catalog import layouts
from fedmr_med.wire.codec import Message, decode_reply
from fedmr_med.wire.forms import ReplyForm
from fedmr_med.wire.kinds import EXCHANGES
from fedmr_med.wire.messages import SiteReply


def read_reply(kind: str, message: Message, site: str = "", *, num_classes: int, feature_size: int = 1) -> SiteReply:
    """Decode a reply of a job with these sizes."""
    return decode_reply(kind, message, site, layouts(kind, Sizes(num_classes, feature_size, feature_size)))


def form_with(class_names: tuple[str, ...], **settings: Any) -> ReplyForm:
    """Return the form of a job with these classes, of which nothing else matters."""
    found = {kind: layouts(kind, Sizes(len(class_names), 1, 1)) for kind in EXCHANGES}
    arrays: dict[str, Any] = {"layouts": found, "model": {}, "payload": {}, "models": {}, "halved": frozenset()}
    plain = {"settings": "", "secure": "none", "private": False, "training_noise": 0.0, "levels": ()}
    return ReplyForm(class_names, **arrays | plain | settings)


def reply_check(job: JobConfig, state: GlobalState) -> ReplyCheck:
    """Return the check of the replies to a round that starts from a state."""
    form = form_of(job, state.model, state.parameters, state.prototypes.means.shape[1])
    return ReplyCheck(job, state, form)
