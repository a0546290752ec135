"""The checkpoint of a chain: one file, written atomically, from which any job of the chain can go on."""

from pathlib import Path
from typing import Any

import torch

from fedmr_med import faults
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.files import atomic_writer
from fedmr_med.prototypes import Prototypes
from fedmr_med.results import History
from fedmr_med.schema import dump_yaml
from fedmr_med.server.state import GlobalState

FORMAT = 1


def save_checkpoint(path: Path, state: GlobalState, job: JobConfig) -> None:
    """Write the global state.

    Raises:
        CheckpointError: it could not be written; the file that was there before stays.
    """
    _save(
        path,
        {
            "format": FORMAT,
            "configuration": job.digest(),
            "job": dump_yaml(job),
            "model": _tensors(state.model),
            "parameters": sorted(state.parameters),
            "prototypes": [state.prototypes.means, state.prototypes.available, state.prototypes.age],
            "method": _tensors(state.method),
            "round": state.round,
            "rounds": job.federation.rounds,
            "accepted": dict(state.accepted),
            "history": state.history.model_dump_json(),
        },
    )


def save_model(path: Path, model: Arrays, about: dict[str, Any]) -> None:
    """Write a model alone, with plain facts about it.

    Raises:
        CheckpointError: it could not be written; the file that was there before stays.
    """
    _save(path, {"format": FORMAT, "model": _tensors(model), **about})


def load_checkpoint(path: Path, job: JobConfig, expected: GlobalState) -> GlobalState:
    """Read the global state.

    Args:
        path: the checkpoint.
        job: the job that wants to go on from it.
        expected: a state of the job's model, to compare names and shapes with.

    Raises:
        CheckpointError: it cannot be read, or it belongs to another model or configuration.
    """
    content = _load(path)
    try:
        model = _arrays(content["model"])
        state = GlobalState(
            model=model,
            parameters=frozenset(content["parameters"]),
            prototypes=Prototypes(*content["prototypes"]),
            method=_arrays(content["method"]),
            round=content["round"],
            accepted=content["accepted"],
            history=History.model_validate_json(content["history"]),
        )
        configuration = content["configuration"]
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"{path} is not a checkpoint of this toolkit ({e!r}).") from e
    difference = _first_difference(model, expected.model)
    if difference:
        raise CheckpointError(f"{path} belongs to another model than {job.model.name} as configured: {difference}.")
    if configuration != job.digest():
        raise CheckpointError(
            f"{path} belongs to another configuration ({configuration}) than this job ({job.digest()}). "
            "Use another chain id, or the settings the chain was started with."
        )
    return state


def load_model(path: Path) -> Arrays:
    """Read the model of a checkpoint or of a saved model.

    Raises:
        CheckpointError: it cannot be read.
    """
    content = _load(path)
    if not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{path} holds no model.")
    return _arrays(content["model"])


def _save(path: Path, content: dict[str, Any]) -> None:
    try:
        with atomic_writer(path) as stream:
            torch.save(content, stream)
            faults.reach(f"{path.stem}-{content.get('round')}")
    except (OSError, RuntimeError) as e:
        # torch reports a failed write as RuntimeError.
        raise CheckpointError(f"{path} could not be written ({e}); what was there before is unchanged.") from e


def _load(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as e:
        raise CheckpointError(f"{path} does not exist.") from e
    except Exception as e:
        # torch.load has no error class of its own: a damaged file gives pickle, zip, runtime and EOF errors.
        raise CheckpointError(f"{path} cannot be read as a checkpoint ({type(e).__name__}).") from e
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of this toolkit's format {FORMAT}.")
    return content


def _first_difference(model: Arrays, expected: Arrays) -> str | None:
    for name in sorted(model.keys() ^ expected.keys()):
        return f"{name!r} is {'missing' if name in expected else 'unexpected'}"
    for name, array in expected.items():
        if model[name].shape != array.shape:
            return f"{name!r} has shape {model[name].shape}, not {array.shape}"
    return None


def _tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _arrays(tensors: dict[str, torch.Tensor]) -> Arrays:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
