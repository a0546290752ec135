"""The shareable generator: global state <-> what FLARE's controller passes around."""

from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.model import ModelLearnable, make_model_learnable
from nvflare.app_common.abstract.shareable_generator import ShareableGenerator

from fedmr_med import methods
from fedmr_med.flare import context
from fedmr_med.server.state import GlobalState
from fedmr_med.wire import codec as wire

_STATE = "fedmr_state"


def to_learnable(state: GlobalState) -> ModelLearnable:
    """Wrap the global state for FLARE's controller."""
    return make_model_learnable(state.model, {_STATE: state})


def from_learnable(learnable: ModelLearnable) -> GlobalState:
    """Unwrap the global state."""
    state = learnable["meta"][_STATE]
    assert isinstance(state, GlobalState)
    return state


def wrap_state(state: GlobalState) -> Shareable:
    """Wrap the aggregator's result. It stays in the server's process; only :func:`wire.encode_task` goes out."""
    shareable = Shareable()
    shareable[_STATE] = state
    return shareable


class FedMRShareableGenerator(ShareableGenerator):
    """Encodes the task for the sites and unwraps what the aggregator made."""

    def learnable_to_shareable(self, model: ModelLearnable, fl_ctx: FLContext) -> Shareable:
        """Encode the global state as a task."""
        job = context.server_job(fl_ctx)
        state = from_learnable(model)
        view = methods.build(job.method).server().client_view(state.method)
        return wire.encode_task(
            state,
            view,
            rounds=job.federation.rounds,
            chain=context.chain_id(job, fl_ctx),
            halved=job.federation.halved(state.parameters),
        )

    def shareable_to_learnable(self, shareable: Shareable, fl_ctx: FLContext) -> ModelLearnable:
        """Unwrap the aggregator's result."""
        return to_learnable(shareable[_STATE])
