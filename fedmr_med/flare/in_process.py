"""FLARE's part of a federation in one process: contexts around the same executor and aggregator."""

from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants

from fedmr_med.errors import FedMRError
from fedmr_med.flare.aggregator import PrototypeAggregator
from fedmr_med.flare.executor import FedMRExecutor
from fedmr_med.flare.generator import FedMRShareableGenerator, from_learnable
from fedmr_med.server.state import GlobalState
from fedmr_med.site.hospital import Hospital

__all__ = ["TRAIN", "VALIDATE", "Shareable", "ask", "close_round", "offer"]

TRAIN, VALIDATE = AppConstants.TASK_TRAIN, AppConstants.TASK_VALIDATION


def ask(hospital: Hospital, task_name: str, task: Shareable) -> Shareable:
    """Let a site's executor answer a task.

    Raises:
        FedMRError: the site could not; its executor has logged why.
    """
    reply = FedMRExecutor(hospital).execute(task_name, task, _context(hospital.name), Signal())
    if reply.get_return_code() != ReturnCode.OK:
        raise FedMRError(f"Site {hospital.name} answered {task_name} with {reply.get_return_code()}; see its log line.")
    return reply


def offer(aggregator: PrototypeAggregator, reply: Shareable, site: str) -> bool:
    """Hand a site's reply to the aggregator; return whether it counts."""
    context = _context("server")
    context.set_peer_context(_context(site))
    return aggregator.accept(reply, context)


def close_round(aggregator: PrototypeAggregator, before: GlobalState) -> GlobalState:
    """Return the global state after the round that started from ``before``.

    Raises:
        FedMRError: too few replies were usable; the message says which were refused, and why.
    """
    context = _context("server")
    result = aggregator.aggregate(context)
    state = from_learnable(FedMRShareableGenerator().shareable_to_learnable(result, context))
    if state.round == before.round:
        raise FedMRError(str(context.get_prop(FLContextKey.EVENT_DATA)))
    return state


def _context(name: str) -> FLContext:
    context = FLContext()
    context.set_prop(ReservedKey.IDENTITY_NAME, name, private=False, sticky=False)
    return context
