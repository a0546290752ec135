"""FLARE contexts for tests without a server: the real classes, filled as FLARE fills them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.workspace import Workspace
from nvflare.private.event import fire_event

JOB_ID = "chain"
"""That of a job that names no chain is the chain of :func:`tests.helpers.small.task_for`."""


class Engine:
    """The part of FLARE's engine that components ask for their folders, and tell of events.

    Attributes:
        handlers: hear every event.
    """

    def __init__(self, workspace: Workspace, name: str, job_id: str, sites: Sequence[str] = ()):
        self.workspace = workspace
        self.clients = [Client(site, f"token of {site}") for site in sites]
        self.handlers: list[FLComponent] = []
        self.contexts = FLContextManager(engine=self, identity_name=name, job_id=job_id)

    def get_workspace(self) -> Workspace:
        return self.workspace

    def get_clients(self) -> list[Client]:
        return self.clients

    def new_context(self) -> FLContext:
        return self.contexts.new_context()

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        fire_event(event_type, self.handlers, fl_ctx)

    def register_aux_message_handler(self, **_: Any) -> None:
        """Nothing comes in beside tasks."""

    def get_all_components(self) -> dict[str, Any]:
        return {}


def site_context(root: Path, site: str, *, simulated: bool, job_id: str = JOB_ID) -> FLContext:
    """Return a context of a site whose workspace is ``root``, as FLARE gives it to an executor."""
    for folder in ("startup", "local"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    context = Engine(Workspace(str(root), site_name=site), site, job_id).new_context()
    context.set_prop(FLContextKey.SIMULATE_MODE, simulated, private=True, sticky=True)
    return context
