"""FLARE contexts for tests without a server: the real classes, filled as FLARE fills them."""

from collections.abc import Sequence
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.workspace import Workspace

JOB_ID = "job-1"


class Engine:
    """The part of FLARE's engine that components ask for their folders and for the sites that are connected."""

    def __init__(self, workspace: Workspace, connected: Sequence[str] = ()):
        self.workspace = workspace
        self.connected = connected

    def get_workspace(self) -> Workspace:
        return self.workspace

    def get_clients(self) -> list[Client]:
        return [Client(name, f"token of {name}") for name in self.connected]


def peer_context(site: str) -> FLContext:
    """Return a server-side context in which ``site`` is the peer."""
    context, peer = FLContext(), FLContext()
    peer.put(ReservedKey.IDENTITY_NAME, site, private=False, sticky=False)
    context.set_peer_context(peer)
    return context


def server_context(root: Path, connected: Sequence[str]) -> FLContext:
    """Return a context of a server whose workspace is ``root``, as FLARE gives it to a component."""
    for folder in ("startup", "local"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    engine = Engine(Workspace(str(root)), connected)
    manager = FLContextManager(
        engine=engine, identity_name="server", job_id=JOB_ID, public_stickers={}, private_stickers={}
    )
    return manager.new_context()


def site_context(root: Path, site: str, *, simulated: bool) -> FLContext:
    """Return a context of a site whose workspace is ``root``, as FLARE gives it to an executor."""
    for folder in ("startup", "local"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    engine = Engine(Workspace(str(root), site_name=site))
    manager = FLContextManager(
        engine=engine, identity_name=site, job_id=JOB_ID, public_stickers={}, private_stickers={}
    )
    context = manager.new_context()
    context.set_prop(FLContextKey.SIMULATE_MODE, simulated, private=True, sticky=True)
    return context
