"""A grid that hands Flower's messages to a ClientApp in this process: no Ray, no SuperLink."""

import uuid
from collections.abc import Iterable

import flwr.app
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


def context_of(node: int) -> flwr.app.Context:
    """Return what an app gets to know of a node."""
    config = {"partition-id": node}
    return flwr.app.Context(1, node, node_config=config, state=flwr.app.RecordDict(), run_config={})


class DirectGrid(Grid):
    """Nodes 0, 1, ... whose app is called when a message is pushed."""

    def __init__(self, app: ClientApp, nodes: int):
        self._app, self._nodes = app, nodes
        self._replies: dict[str, flwr.app.Message] = {}
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 0  # as a runtime of Flower's does

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        return Run.create_empty(run_id=1)

    def create_message(self, *_: object, **__: object) -> flwr.app.Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self._nodes + 1)

    def push_messages(self, messages: Iterable[flwr.app.Message]) -> Iterable[str]:
        sent = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            sent.append(message.metadata.message_id)
            self._replies[sent[-1]] = self._app(message, context_of(message.metadata.dst_node_id - 1))
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[flwr.app.Message]:
        return [self._replies.pop(name) for name in list(message_ids)]

    def send_and_receive(
        self, messages: Iterable[flwr.app.Message], *, timeout: float | None = None
    ) -> Iterable[flwr.app.Message]:
        return self.pull_messages(self.push_messages(messages))


def run_apps(server: ServerApp, client: ClientApp, nodes: int) -> None:
    """Run two apps in this process."""
    server(DirectGrid(client, nodes), context_of(0))
