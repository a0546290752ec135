"""What may leave a site in FLARE's containers: the site's own rule, for the layers behind the executor.

The rule is :func:`fedmr_med.site.release.released`. The containers could carry something out as well: by return codes
and by headers of FLARE's own.
"""

import re
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply

from fedmr_med.errors import WireError
from fedmr_med.flare import context, messages
from fedmr_med.privacy import refusals
from fedmr_med.site import release

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


def released(reply: Shareable, fl_ctx: FLContext) -> Shareable:
    """Return a new message with what the site's policy allows of a task's reply, and nothing else.

    Raises:
        FedMRError: the site has no valid policy or refuses the job, or the reply cannot be read in full. Nothing may
            leave then.
    """
    code = reply.get_return_code()
    if code != ReturnCode.OK:
        if code not in _CODES:
            raise WireError("the return code is not one of the known names", code="wire.header", key="return_code")
        return make_reply(code)
    view, task = context.outgoing_view(fl_ctx), str(fl_ctx.get_prop(FLContextKey.TASK_NAME))
    message = release.released(task, messages.to_message(reply, task), view.policy, view.form, left=view.left)
    return messages.to_shareable(message, task)


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

    ``cookies`` are the server's own, as they came with the task.
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
