"""The checkpoint of a chain: one file, written atomically, from which any job of the chain can resume."""

from pathlib import Path

from fedmr_med.arrays import difference, forms_of
from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.model_file import as_arrays, as_tensors, described, read_tensors, write_tensors
from fedmr_med.prototypes import Prototypes
from fedmr_med.results import History
from fedmr_med.server.state import GlobalState


def save_checkpoint(path: Path, state: GlobalState, job: JobConfig) -> None:
    """Write the global state.

    Raises:
        CheckpointError: it could not be written; the file that was there before stays.
    """
    content = described(state.model, job, state.round) | {
        "configuration": job.digest(),
        "parameters": sorted(state.parameters),
        "prototypes": [state.prototypes.means, state.prototypes.available, state.prototypes.age],
        "method": as_tensors(state.method),
        "optimizer": as_tensors(state.optimizer),
        "head": as_tensors(state.head),
        "accepted": dict(state.accepted),
        "history": state.history.model_dump_json(),
    }
    write_tensors(path, content)


def load_checkpoint(path: Path, job: JobConfig, expected: GlobalState) -> GlobalState:
    """Read the global state.

    Args:
        path: the checkpoint.
        job: the job that wants to resume from it.
        expected: a state of the job's model, to compare names and shapes with.

    Raises:
        CheckpointError: it cannot be read, or it belongs to another model or configuration.
    """
    content = read_tensors(path)
    try:
        state = GlobalState(
            model=as_arrays(content["model"]),
            parameters=frozenset(content["parameters"]),
            prototypes=Prototypes(*content["prototypes"]),
            method=as_arrays(content["method"]),
            optimizer=as_arrays(content["optimizer"]),
            head=as_arrays(content["head"]),
            round=content["round"],
            accepted=content["accepted"],
            history=History.model_validate_json(content["history"]),
        )
        configuration = content["configuration"]
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"{path} is not a checkpoint of this toolkit ({e!r}).") from e
    found = difference(state.model, forms_of(expected.model))
    if found:
        raise CheckpointError(f"{path} belongs to another model than {job.model.name} as configured: it {found}.")
    if configuration != job.digest():
        raise CheckpointError(
            f"{path} belongs to another configuration ({configuration}) than this job ({job.digest()}). "
            "Use another chain id, or the settings the chain was started with."
        )
    return state
