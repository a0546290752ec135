"""A controller at work over FLARE's real task machinery, without a network: the test plays the sites."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from fedmr_med.config import JobConfig
from fedmr_med.files import write_text
from fedmr_med.flare.controller import FedMRController
from fedmr_med.schema import dump_yaml
from tests.helpers.contexts import JOB_ID, Engine


class Panics(FLComponent):
    """Remembers why a run was given up, and gives it up, as FLARE's server runner does."""

    def __init__(self, abort: Signal):
        super().__init__()
        self.abort = abort
        self.reasons: list[str] = []

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.FATAL_SYSTEM_ERROR:
            self.reasons.append(str(fl_ctx.get_prop(FLContextKey.EVENT_DATA)))
            self.abort.trigger(True)


class ControllerAtWork:
    """Runs a job's controller in a thread; the test asks for tasks and answers them in the sites' names."""

    def __init__(self, folder: Path, job: JobConfig, sites: Sequence[str]):
        for name in ("startup", "local"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_text(folder / JOB_ID / "app_server" / "config" / "fedmr.yaml", dump_yaml(job))
        self.engine = Engine(Workspace(str(folder), "server"), "server", JOB_ID, sites)
        self.abort = Signal()
        self.panics = Panics(self.abort)
        self.controller = FedMRController()
        self.communicator = WFCommServer()
        self.controller.set_communicator(self.communicator)
        self.engine.handlers = [self.controller, self.panics]
        self.thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator["ControllerAtWork"]:
        """Start the controller and end it with the body, whatever happened."""
        self.thread.start()
        try:
            yield self
        finally:
            self.abort.trigger(True)
            self.thread.join(30)
            assert not self.thread.is_alive()

    def _run(self) -> None:
        with self.engine.new_context() as fl_ctx:
            self.communicator.initialize_run(fl_ctx)
            self.controller.initialize(fl_ctx)
            self.controller.control_flow(self.abort, fl_ctx)  # FLARE calls it even if the start failed
            self.controller.stop_controller(fl_ctx)
            self.communicator.finalize_run(fl_ctx)

    def receive(self, site: str, seconds: float = 30) -> tuple[str, str, Shareable]:
        """Ask for a task as a site would, until there is one; return its name, id and content."""
        client, give_up = self._client(site), time.monotonic() + seconds
        while time.monotonic() < give_up:
            with self.engine.new_context() as fl_ctx:
                name, task_id, data = self.communicator.process_task_request(client, fl_ctx)
            if task_id:
                return name, task_id, data
            time.sleep(0.02)
        raise TimeoutError(f"no task for {site}; given up: {self.panics.reasons}")

    def answer(self, site: str, task: tuple[str, str, Any], reply: Shareable, *, named: str | None = None) -> None:
        """Answer a task in a site's name; ``named`` is what the message says of its sender."""
        name, task_id, sent = task
        if "settings" in reply.get("DXO", {}).get("meta", {}):
            reply["DXO"]["meta"]["settings"] = sent["DXO"]["meta"]["settings"]  # replies are made for another job
        with self.engine.new_context() as fl_ctx:
            peer = FLContext()
            peer.put(ReservedKey.IDENTITY_NAME, named or site, private=False, sticky=False)
            fl_ctx.set_peer_context(peer)
            self.communicator.process_submission(self._client(site), name, task_id, reply, fl_ctx)

    def progress(self) -> dict[str, Any]:
        """Return what a coordinator who watches would see."""
        progress = self.controller._progress
        values = None if progress is None else progress.values()
        assert values is not None, "nothing is asked yet"
        return values

    def heard(self, site: str, seconds: float = 30) -> dict[str, Any]:
        """Wait until the server has looked at a site's answer; return what a coordinator would see then."""
        give_up = time.monotonic() + seconds
        while site in (progress := self.progress())["waiting"]:
            if time.monotonic() > give_up:
                raise TimeoutError(f"the answer of {site} was not looked at")
            time.sleep(0.02)
        return progress

    def _client(self, site: str) -> Client:
        return next(client for client in self.engine.clients if client.name == site)
