"""A component that test jobs carry in their ``custom`` folder: it keeps the bytes a site puts on the wire.

It also holds back the train replies of the sites in ``delays`` for some seconds, to force an order of arrival.
"""

import time
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.utils import fobs


class WireRecorder(FLComponent):
    """Writes every serialised train reply, after all filters, to ``folder/<site>-<number>``."""

    def __init__(self, folder: str, delays: dict[str, float] | None = None):
        super().__init__()
        self.folder = Path(folder)
        self.delays = delays or {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Record a reply on its way out."""
        if event_type != EventType.AFTER_TASK_RESULT_FILTER or fl_ctx.get_prop(FLContextKey.TASK_NAME) != "train":
            return
        site = fl_ctx.get_identity_name()
        time.sleep(self.delays.get(site, 0.0))
        number = len(list(self.folder.glob(f"{site}-*")))
        (self.folder / f"{site}-{number}").write_bytes(fobs.dumps(fl_ctx.get_prop(FLContextKey.TASK_RESULT)))
