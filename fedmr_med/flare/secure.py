"""The steps of a secure sum as FLARE tasks."""

from collections.abc import Callable, Sequence

from nvflare.apis.controller_spec import ClientTask
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fedmr_med.errors import WireError
from fedmr_med.flare.messages import to_message, to_shareable
from fedmr_med.privacy.refusals import in_words
from fedmr_med.server.secure import Ask
from fedmr_med.wire.codec import Message

Take = Callable[[ClientTask, FLContext], None]
Send = Callable[[Shareable, Sequence[str], Take, Callable[[], bool]], None]
"""Sends a task to sites and waits until all have answered, or enough have and the others had time."""


def asking(send: Send, warn: Callable[[str], None]) -> Ask:
    """Return what brings the questions of a secure sum to the sites.

    Args:
        send: sends a task.
        warn: says why a site has dropped out.
    """

    def ask(question: Message, sites: Sequence[str], enough: int) -> dict[str, Message]:
        answers: dict[str, Message] = {}

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            site, result = client_task.client.name, client_task.result
            try:
                if result.get_return_code() != ReturnCode.OK:
                    raise WireError(in_words(str(result.get_return_code())), code="wire.refused")
                answers[site] = to_message(result)
            except WireError as e:
                warn(f"{site} takes no part in a secure sum: {e}")
            client_task.result = None

        send(to_shareable(question), sites, take, lambda: len(answers) >= enough)
        return dict(answers)

    return ask
