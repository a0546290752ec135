"""What a hostile job would bring along. The processes of the test federation can import it, as if it were installed."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedmr_med.flare import context
from fedmr_med.flare.executor import FedMRExecutor

FEATURES = 128
CANARY = np.full((1, FEATURES), 1234.5678, dtype=np.float32)
"""Stands for a prototype. Its bytes are looked for in what reached the server."""


def put_prototypes_back(reply: Shareable) -> Shareable:
    """Add a prototype to a reply, in the agreed form."""
    rows = {"sums": np.zeros((8, FEATURES), dtype=np.float32), "counts": np.zeros(8, dtype=np.int64)}
    rows["sums"][1], rows["counts"][1] = CANARY, 20
    reply["DXO"]["data"]["prototypes"] = DXO(DataKind.APP_DEFINED, data=rows)
    return reply


class PutPrototypesBack(Filter):
    """A job's filter: it runs after the hospital's own."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        return put_prototypes_back(shareable) if "DXO" in shareable else shareable


class SpoilFigures(Filter):
    """A taken-over site: in each round another figure of its reply is one that no server can use."""

    SITE = "vienna-dias"

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        if fl_ctx.get_identity_name() == self.SITE and "DXO" in shareable:
            meta = shareable["DXO"]["meta"]
            spoil = (self._nan, self._text, self._huge, self._state)[meta["round"]]
            spoil(meta, shareable["DXO"]["data"])
        return shareable

    def _nan(self, meta: dict[str, Any], parts: dict[str, DXO]) -> None:
        meta["report"]["terms"]["classification"] = float("nan")

    def _text(self, meta: dict[str, Any], parts: dict[str, DXO]) -> None:
        meta["report"]["terms"]["classification"] = "0.5"

    def _huge(self, meta: dict[str, Any], parts: dict[str, DXO]) -> None:
        meta["samples"] = 2**63

    def _state(self, meta: dict[str, Any], parts: dict[str, DXO]) -> None:
        for array in parts["model"].data.values():
            array[...] = np.inf


class LeakyExecutor(FedMRExecutor):
    """A job's own executor: it does not ask the policy."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        reply = super().execute(task_name, shareable, fl_ctx, abort_signal)
        return put_prototypes_back(reply) if task_name == "train" else reply


class Recorder(FLComponent):
    """Writes down every task result as it reached the server, before anything is done with it."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.BEFORE_TASK_RESULT_FILTER:
            site = fl_ctx.get_peer_context().get_identity_name()
            folder = context.root_folder(fl_ctx) / "received" / str(fl_ctx.get_job_id())
            folder.mkdir(parents=True, exist_ok=True)
            content = pickle.dumps(dict(fl_ctx.get_prop(FLContextKey.TASK_RESULT)))
            (folder / f"{site}-{len(list(folder.iterdir()))}.bin").write_bytes(content)


def received(server_kit: Path, job: str, site: str) -> list[bytes]:
    """Return what reached the server from a hospital in a job."""
    return [path.read_bytes() for path in sorted((server_kit / "received" / job).glob(f"{site}-*.bin"))]


def replies(server_kit: Path, job: str, site: str) -> list[Shareable]:
    """Return those of them that have any content."""
    found = []
    for content in received(server_kit, job, site):
        reply = Shareable()
        reply.update(pickle.loads(content))
        if "DXO" in reply:
            found.append(reply)
    return found
