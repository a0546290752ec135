"""FLARE's tasks as a transport: of a provisioned federation, or of the simulator."""

from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue

from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedmr_med.config import FederationConfig
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.exchange.transport import Answer, Grace, Stopped, seconds_for
from fedmr_med.flare.messages import to_message, to_shareable
from fedmr_med.privacy.refusals import in_words
from fedmr_med.wire.codec import Message

POLL_SECONDS = 0.1


class FlareTransport:
    """Sends messages as FLARE tasks and yields the answers as they come.

    Attributes:
        asked: kind of the last message; "" before the first.
        answered: the sites that have answered it.
    """

    in_order = False

    def __init__(self, controller: Controller, federation: FederationConfig, abort_signal: Signal, fl_ctx: FLContext):
        self._controller, self._federation = controller, federation
        self._abort, self._fl_ctx = abort_signal, fl_ctx
        self.asked, self.answered = "", set[str]()

    def sites(self, kind: str = "") -> list[str]:
        """Return the sites that FLARE is in touch with."""
        return sorted(client.name for client in self._fl_ctx.get_engine().get_clients())

    def ask(
        self, kind: str, message: Message, sites: Sequence[str], enough: Callable[[], bool]
    ) -> Iterator[tuple[str, Answer]]:
        """Send a task and yield the answers: of all, or of enough and those that come in the time of grace.

        FLARE counts every answer towards its own quorum, also one that is of no use. So the quorum is counted here,
        and FLARE is asked to wait for all of them.

        Raises:
            FedMRError: there is no site to ask.
            Stopped: the job was aborted.
        """
        if not sites:
            raise FedMRError("No site is connected.", code="round.no-site")
        answers: SimpleQueue[tuple[str, Answer]] = SimpleQueue()
        self.asked, self.answered = kind, set()

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            site, named = client_task.client.name, fl_ctx.get_peer_context().get_identity_name()
            answers.put((site, _read(kind, site, named, client_task.result)))
            client_task.result = None  # FLARE would hold every model until the end of the task

        seconds = seconds_for(kind, self._federation, len(sites))
        task = Task(name=kind, data=to_shareable(message), timeout=seconds, result_received_cb=take)
        self._controller.broadcast(task=task, fl_ctx=self._fl_ctx, targets=list(sites), min_responses=0)
        grace = Grace(enough, self._federation.grace_seconds)
        while True:
            over = task.completion_status is not None
            try:
                site, answer = answers.get(timeout=0 if over else POLL_SECONDS)
                yield site, answer
                self.answered.add(site)
                continue
            except Empty:
                if over:
                    break
            if self._abort.triggered:
                self._controller.cancel_task(task, TaskCompletionStatus.ABORTED, self._fl_ctx)
            elif grace.over():
                self._controller.cancel_task(task, TaskCompletionStatus.OK, self._fl_ctx)
        if self._abort.triggered:
            raise Stopped


def _read(kind: str, site: str, named: str, result: Shareable) -> Answer:
    """Return what a site answered, or why it is of no use. Never raises: one site must not end the round."""
    try:
        # FLARE authenticates the sender, not the name in the message.
        if named != site:
            return WireError(f"it calls itself {named!r}", code="wire.sender")
        if result.get_return_code() != ReturnCode.OK:
            return WireError(in_words(str(result.get_return_code())), code="wire.refused")
        return to_message(result, kind)
    except WireError as e:
        return e
    except Exception as e:
        return WireError(f"the reply could not be read ({type(e).__name__})", code="wire.unreadable")
