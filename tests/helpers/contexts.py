"""FLARE contexts for tests without a server: the real classes, filled as FLARE fills them."""

from pathlib import Path

from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.workspace import Workspace
from nvflare.private.event import fire_event

JOB_ID = "job-1"


class Engine:
    """The part of FLARE's engine that components ask for their folders and tell of events.

    Attributes:
        handlers: hear every event.
    """

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        self.handlers: list[FLComponent] = []
        self.contexts: FLContextManager

    def get_workspace(self) -> Workspace:
        return self.workspace

    def new_context(self) -> FLContext:
        return self.contexts.new_context()

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        fire_event(event_type, self.handlers, fl_ctx)


def site_context(root: Path, site: str, *, simulated: bool, job_id: str = JOB_ID) -> FLContext:
    """Return a context of a site whose workspace is ``root``, as FLARE gives it to an executor."""
    for folder in ("startup", "local"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    engine = Engine(Workspace(str(root), site_name=site))
    manager = FLContextManager(
        engine=engine, identity_name=site, job_id=job_id, public_stickers={}, private_stickers={}
    )
    engine.contexts = manager
    context = manager.new_context()
    context.set_prop(FLContextKey.SIMULATE_MODE, simulated, private=True, sticky=True)
    return context
