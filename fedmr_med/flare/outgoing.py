"""What may leave a site, message by message: the one rule that filter and guard apply.

A reply is read strictly and written anew from what was read, so nothing that is not named here can travel along:
no further key, header, array or class. Whatever cannot be read in full is refused.
"""

import re
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants

from fedmr_med.data.labels import check_classes
from fedmr_med.errors import PolicyError, WireError
from fedmr_med.flare import context, messages
from fedmr_med.flare.approval import require_approval
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy import refusals
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.secure.messages import Masked
from fedmr_med.site.release import permitted, permitted_scores, permitted_statistics
from fedmr_med.wire.codec import Message
from fedmr_med.wire.form import ReplyForm
from fedmr_med.wire.kinds import HEAD, SECURE
from fedmr_med.wire.secure import Answer, decode_answer, encode_answer
from fedmr_med.wire.statistics import HeadReply

# FLARE writes these on the way out: which task this answers, and the server's own cookies sent back.
_FLARE_HEADERS = {
    ReservedHeaderKey.RC,
    ReservedHeaderKey.CONTENT_TYPE,
    ReservedHeaderKey.COOKIE_JAR,
    ReservedHeaderKey.TASK_NAME,
    ReservedHeaderKey.TASK_ID,
    ReservedHeaderKey.AUDIT_EVENT_ID,
    ReservedHeaderKey.MSG_ROOT_ID,
    ReservedHeaderKey.MSG_ROOT_TTL,
}
_IDENTIFIER = re.compile(r"[0-9a-fA-F-]{0,36}")
_LONGEST = 10**12
# The words a reply without content may consist of: FLARE's and ours.
_CODES = {value for name, value in vars(ReturnCode).items() if name.isupper()} | refusals.WORDS.keys()


class ReleaseRule:
    """The rule of one site in one job."""

    def __init__(self) -> None:
        self._form: ReplyForm | None = None

    def released(self, reply: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return a new message with what this site's policy allows of ``reply``.

        The policy is read afresh every time, so that a stricter one counts from the next reply on, and so are the
        decisions of the site's people.

        Raises:
            FedMRError: the site has no valid policy, or the reply cannot be read in full. Nothing may leave then.
        """
        if reply.get_return_code() == ReturnCode.OK:
            require_approval(fl_ctx)
        site, _ = context.site_settings(fl_ctx)
        if self._form is None:
            self._form = reply_form(context.client_job(fl_ctx))
        if reply.get_return_code() == ReturnCode.OK:
            check_classes(site, self._form.class_names)
        return released(str(fl_ctx.get_prop(FLContextKey.TASK_NAME)), reply, site.policy, self._form)


def released(task: str, reply: Shareable, policy: SitePolicy, form: ReplyForm) -> Shareable:
    """Return a new message with what the policy allows of a reply to ``task``, and nothing else.

    Raises:
        WireError: the reply does not have the agreed form.
        PolicyError: the policy does not allow an answer to this task.
    """
    code = reply.get_return_code()
    if code != ReturnCode.OK:
        if code not in _CODES:
            raise WireError("the return code is not one of the known names", code="wire.header", key="return_code")
        return make_reply(code)
    if task == AppConstants.TASK_TRAIN:
        classes, size = len(form.class_names), form.feature_size
        content = messages.decode_reply(reply, site="", num_classes=classes, feature_size=size)
        form.check(content)
        left = permitted(
            content,
            policy,
            form.class_names,
            secure=form.secure,
            private=form.private,
            training_noise=form.training_noise,
        )
        return messages.encode_reply(left, halved=form.halved)
    if task == AppConstants.TASK_VALIDATION:
        scores = messages.decode_validation(reply, len(form.class_names))
        summed = form.secure != "none"
        return messages.encode_validation(None if summed else permitted_scores(scores, policy, form.class_names))
    if task == HEAD:
        classes, size = len(form.class_names), form.statistics_size
        statistics = messages.decode_statistics(reply, site="", num_classes=classes, feature_size=size)
        none = HeadReply(statistics.site, statistics.round)
        closed = form.secure != "none" or (policy.privacy is not None and not form.private)
        allowed = none if closed else permitted_statistics(statistics, policy, form.class_names)
        return messages.encode_statistics(allowed)
    if task == SECURE and form.secure != "none":
        return messages.to_shareable(encode_answer(_secure_answer(messages.to_message(reply), form)))
    if task == AppConstants.TASK_SUBMIT_MODEL and policy.allow_submit_model and form.secure != "all":
        policy.check_training_noise(form.training_noise)
        model = messages.decode_model(reply)
        form.check_model(model)
        return messages.encode_model(model)
    raise PolicyError(f"the policy does not allow an answer to the task {task!r}", code="policy.task-refused")


def _secure_answer(message: Message, form: ReplyForm) -> Answer:
    """Read an answer to a step of a secure sum. What its vector holds, nobody can see: the executor answers for that.

    Raises:
        WireError: it does not have the agreed form, or is longer than any sum of the job.
    """
    answer = decode_answer(message, site="")
    if isinstance(answer, Masked) and len(answer.vector) not in form.sum_sizes:
        raise WireError("the masked vector is of no sum of this job", code="wire.form", key="vector")
    return answer


def same_message(a: Shareable, b: Shareable) -> bool:
    """Whether two messages carry the same content; headers of FLARE's own do not count."""
    return _equal(_content(a), _content(b))


def task_headers(fl_ctx: FLContext, cookies: Any) -> dict[str, Any]:
    """Return the headers that say which task a reply answers."""
    return {
        ReservedHeaderKey.COOKIE_JAR: cookies,
        ReservedHeaderKey.TASK_NAME: fl_ctx.get_prop(FLContextKey.TASK_NAME),
        ReservedHeaderKey.TASK_ID: fl_ctx.get_prop(FLContextKey.TASK_ID),
    }


def check_headers(reply: Shareable, fl_ctx: FLContext, cookies: Any) -> None:
    """Raise WireError unless FLARE's own headers say what they always say: they, too, could carry something out.

    Args:
        reply: the message on its way out.
        fl_ctx: says which task it answers.
        cookies: the server's own, as they came with the task.
    """
    headers = reply.get(ReservedHeaderKey.HEADERS) or {}
    for key, expected in {ReservedHeaderKey.CONTENT_TYPE: "DXO", **task_headers(fl_ctx, cookies)}.items():
        if headers.get(key) is not None and headers[key] != expected:
            raise WireError(f"the header {key} is not what it has to be", code="wire.header", key=key)
    for key in (ReservedHeaderKey.AUDIT_EVENT_ID, ReservedHeaderKey.MSG_ROOT_ID):
        if not _IDENTIFIER.fullmatch(str(headers.get(key) or "")):
            raise WireError(f"the header {key} is not an id", code="wire.header", key=key)
    ttl = headers.get(ReservedHeaderKey.MSG_ROOT_TTL) or 0
    if type(ttl) not in (int, float) or not 0 <= ttl < _LONGEST:
        raise WireError(
            f"the header {ReservedHeaderKey.MSG_ROOT_TTL} is not a number of seconds",
            code="wire.header",
            key=ReservedHeaderKey.MSG_ROOT_TTL,
        )


def empty(reply: Shareable, code: str, headers: dict[str, Any]) -> None:
    """Remove everything from a reply, in place, but its return code and the headers that say which task it answers."""
    reply.clear()
    reply[ReservedHeaderKey.HEADERS] = {key: value for key, value in headers.items() if value is not None}
    reply.set_return_code(code)


def _content(message: Shareable) -> dict[str, Any]:
    headers = message.get(ReservedHeaderKey.HEADERS) or {}
    foreign = {key: value for key, value in headers.items() if key not in _FLARE_HEADERS}
    return {**message, ReservedHeaderKey.HEADERS: foreign}


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        same = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype
        return same and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if type(a) is not type(b):
        return False
    if isinstance(a, DXO):
        a, b = a.to_dict(), b.to_dict()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)
