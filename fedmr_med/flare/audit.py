"""The audit log of a site: what left in each round. Kinds, shapes, bytes and classes, never values."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fedmr_med.files import journal
from fedmr_med.flare import context
from fedmr_med.flare.messages import PARTS
from fedmr_med.flare.outgoing import empty, task_headers
from fedmr_med.statistics.moments import COUNTS
from fedmr_med.statistics.scores import WITHHELD
from fedmr_med.wire import codec as wire

AUDIT_FILE = "released.jsonl"
NO_REPLY: dict[str, Any] = {"code": "NO_REPLY", "bytes": 0, "parts": {}}


class AuditLog(FLComponent):
    """Adds a line per reply to the journal ``released.jsonl`` in the site's workspace, refused and failed ones too.

    To be listed after the guard. A reply with content is written down right after the last filter, which no way out
    goes around; what cannot be written down does not leave. A reply that FLARE makes itself, a return code alone, is
    written down before it is sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reply: Shareable | None = None
        self._written: dict[str, Any] | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Write down the reply, and again if it was changed before it is sent."""
        if event_type == EventType.BEFORE_TASK_EXECUTION:
            self._reply = self._written = None
        elif event_type == EventType.AFTER_TASK_RESULT_FILTER:
            self._reply = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
            self._write(fl_ctx)
        elif event_type == EventType.BEFORE_SEND_TASK_RESULT:
            self._write(fl_ctx)
            self._reply = self._written = None

    def _write(self, fl_ctx: FLContext) -> None:
        try:
            content = (
                NO_REPLY
                if self._reply is None
                else describe(self._reply, lambda: context.outgoing_view(fl_ctx).job.task.class_names)
            )
            if content != self._written:
                journal.append(context.root_folder(fl_ctx) / AUDIT_FILE, _about(fl_ctx) | content)
            self._written = content
        except Exception as e:
            if self._reply is not None:
                headers = task_headers(fl_ctx, self._reply.get_cookie_jar())
                empty(self._reply, ReturnCode.TASK_RESULT_FILTER_ERROR, headers)
            self.log_error(fl_ctx, f"the reply stays here, it could not be audited: {e!r}", fire_event=False)


def _about(fl_ctx: FLContext) -> dict[str, Any]:
    now, task = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), fl_ctx.get_prop(FLContextKey.TASK_NAME)
    return {"time": now, "job": fl_ctx.get_job_id(), "task": task, **context.noted(fl_ctx)}


def describe(reply: Shareable, class_names: Callable[[], tuple[str, ...]]) -> dict[str, Any]:
    """Return what a reply holds: per part its kind, the shape of each array, bytes and classes.

    ``class_names`` is called for a reply that has content.
    """
    code = reply.get_return_code()
    if code != ReturnCode.OK:
        return {"code": code, "bytes": 0, "parts": {}}
    dxo = from_shareable(reply)
    members, meta = _members(dxo), dxo.data if dxo.data_kind == DataKind.METRICS else dxo.meta
    parts = {name: _part(part) for name, part in members.items()}
    line: dict[str, Any] = {"code": code, "bytes": sum(part["bytes"] for part in parts.values()), "parts": parts}
    for name, part in members.items():
        if COUNTS in part.data and name != wire.MODEL:
            names = class_names()
            parts[name]["classes"] = [names[i] for i in np.asarray(part.data[COUNTS]).nonzero()[0]]
    if wire.ROUND in meta:
        line["round"] = meta[wire.ROUND] + 1
    scores = meta.get(wire.SCORES)
    line["metrics"] = "none" if not scores else "per_class" if WITHHELD in scores else "scalar"
    line["report"] = sorted(meta.get(wire.REPORT) or ())
    return line


def _members(dxo: DXO) -> dict[str, DXO]:
    """Return the parts of a reply by name; one that has none is a part itself."""
    if dxo.data_kind == DataKind.METRICS:
        return {name: DXO(DataKind.METRICS, data=arrays) for name, arrays in dxo.data.get(PARTS, {}).items()}
    return dxo.data if all(isinstance(part, DXO) for part in dxo.data.values()) else {"content": dxo}


def _part(dxo: DXO) -> dict[str, Any]:
    arrays = {name: array for name, array in dxo.data.items() if isinstance(array, np.ndarray)}
    return {
        "kind": str(getattr(dxo.data_kind, "value", dxo.data_kind)),
        "bytes": sum(array.nbytes for array in arrays.values()),
        "shapes": {name: [str(array.dtype), *array.shape] for name, array in arrays.items()},
    }
