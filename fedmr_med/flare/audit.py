"""The audit log of a site: what left in each round. Kinds, shapes, bytes and classes, never values."""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fedmr_med.flare import context
from fedmr_med.flare.outgoing import empty
from fedmr_med.wire import codec as wire

AUDIT_FILE = "released.jsonl"


class AuditLog(FLComponent):
    """Appends one line per reply to ``released.jsonl`` in the site's workspace, right before it is sent.

    To be listed after the guard. What cannot be written down does not leave.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reply: Shareable | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Remember the reply, and write it down before it is sent."""
        if event_type == EventType.BEFORE_TASK_EXECUTION:
            self._reply = None
        elif event_type == EventType.AFTER_TASK_RESULT_FILTER:
            self._reply = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
        elif event_type == EventType.BEFORE_SEND_TASK_RESULT and self._reply is not None:
            try:
                self._write(self._reply, fl_ctx)
            except Exception as e:
                empty(self._reply, ReturnCode.TASK_RESULT_FILTER_ERROR)
                self.log_error(fl_ctx, f"the reply stays here, it could not be audited: {e!r}", fire_event=False)

    def _write(self, reply: Shareable, fl_ctx: FLContext) -> None:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "job": fl_ctx.get_job_id(),
            "task": fl_ctx.get_prop(FLContextKey.TASK_NAME),
            **describe(reply, context.client_job(fl_ctx).task.class_names),
        }
        append_line(context.root_folder(fl_ctx) / AUDIT_FILE, line)


def describe(reply: Shareable, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Return what a reply holds: per part its kind, the shape of each array, bytes and classes."""
    code = reply.get_return_code()
    if code != ReturnCode.OK:
        return {"code": code, "bytes": 0, "parts": {}}
    dxo = from_shareable(reply)
    members = dxo.data if all(isinstance(part, DXO) for part in dxo.data.values()) else {"content": dxo}
    parts = {name: _part(part) for name, part in members.items()}
    line: dict[str, Any] = {"code": code, "bytes": sum(part["bytes"] for part in parts.values()), "parts": parts}
    if wire.PROTOTYPES in members:
        classes = members[wire.PROTOTYPES].data["classes"]
        parts[wire.PROTOTYPES]["classes"] = [class_names[i] for i in classes]
    if wire.ROUND in dxo.meta:
        line["round"] = dxo.meta[wire.ROUND] + 1
    scores = dxo.meta.get(wire.SCORES) or dxo.data.get(wire.SCORES)
    line["metrics"] = "none" if not scores else "scalar" if scores["confusion"] is None else "per_class"
    line["report"] = sorted(dxo.meta.get(wire.REPORT) or ())
    return line


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Append one JSON line and sync it to the disk."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _part(dxo: DXO) -> dict[str, Any]:
    arrays = {name: array for name, array in dxo.data.items() if isinstance(array, np.ndarray)}
    return {
        "kind": str(getattr(dxo.data_kind, "value", dxo.data_kind)),
        "bytes": sum(array.nbytes for array in arrays.values()),
        "shapes": {name: [str(array.dtype), *array.shape] for name, array in arrays.items()},
    }
