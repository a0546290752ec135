"""Finds the global models of a chain for FLARE's cross-site evaluation."""

from dataclasses import replace

from nvflare.apis.dxo import DXO, from_shareable
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.model_locator import ModelLocator

from fedmr_med.flare import context
from fedmr_med.flare.messages import to_shareable
from fedmr_med.models.model_file import load_model
from fedmr_med.server.chain import BEST_MODEL, CHECKPOINT
from fedmr_med.server.state import initial_state, train_task
from fedmr_med.wire.codec import encode_task

_FILES = {"final": CHECKPOINT, "best": BEST_MODEL}


class GlobalModelLocator(ModelLocator):
    """Hands out the final and the best model of the job's chain, in the form of our own ``validate`` tasks.

    So a site answers FLARE's evaluation as it answers ours, under the same policy.
    """

    def get_model_names(self, fl_ctx: FLContext) -> list[str]:
        """Return which of the models are there."""
        folder = context.chain_folder(fl_ctx, context.server_job(fl_ctx)[0])
        return [name for name, file in _FILES.items() if (folder / file).exists()]

    def locate_model(self, model_name: str, fl_ctx: FLContext) -> DXO:
        """Return a model as a task; raise CheckpointError if its file cannot be read."""
        job, _ = context.server_job(fl_ctx)
        # A file of this chain: its network is the job's, which was checked.
        saved = load_model(context.chain_folder(fl_ctx, job) / _FILES[model_name], allow_code=True)
        initial = initial_state(job)
        # The best model leaves whole; a task has the frozen part of a network elsewhere.
        model = {name: saved.model[name] for name in initial.model}
        state = replace(initial, model=model, round=saved.round)
        task = train_task(state, job, context.chain_id(job, fl_ctx))
        halved = job.federation.halved(state.parameters)
        return from_shareable(to_shareable(encode_task(task, halved=halved)))
