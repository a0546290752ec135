"""A model on disk: weights, and all that is needed to build the network again from that one file.

A chain's checkpoint is such a file too, with more in it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedmr_med import faults, models
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data.transforms import normalisation
from fedmr_med.errors import CheckpointError
from fedmr_med.files import atomic_writer
from fedmr_med.network import build_network
from fedmr_med.schema import dump_yaml, parse_yaml, validated

FORMAT = 2


@dataclass(frozen=True)
class SavedModel:
    """What a model file says.

    Attributes:
        model: weights and buffers by name.
        job: the settings it was trained with; class names, image size and transform among them.
        round: rounds of training that it had.
        about: further plain facts.
    """

    model: Arrays
    job: JobConfig
    round: int
    about: dict[str, Any]

    def network(self) -> models.Network:
        """Return the network with these weights, in evaluation mode.

        Raises:
            CheckpointError: the weights do not fit the job's network.
        """
        network = build_network(self.job)
        models.load_arrays(network, self.model)
        return network.eval()


def save_model(path: Path, model: Arrays, job: JobConfig, *, round_number: int, **about: Any) -> None:
    """Write a model with what is needed to use it, and further plain facts.

    Raises:
        CheckpointError: it could not be written; the file that was there before stays.
    """
    write_tensors(path, described(model, job, round_number) | about)


def described(model: Arrays, job: JobConfig, round_number: int) -> dict[str, Any]:
    """Return the part of the content that every model file has."""
    return {
        "format": FORMAT,
        "job": dump_yaml(job),
        "class_names": list(job.task.class_names),
        "normalisation": normalisation(job.task.transform, job.task.channels),
        "model": as_tensors(model),
        "round": round_number,
    }


def load_model(path: Path) -> SavedModel:
    """Read a model file or the model of a checkpoint.

    Raises:
        CheckpointError: it cannot be read.
    """
    content = read_tensors(path)
    known = ("format", "job", "class_names", "normalisation", "model", "round")
    try:
        job = validated(JobConfig, parse_yaml(content["job"]), f"the job in {path}", CheckpointError)
        model = as_arrays(content["model"])
        about = {key: value for key, value in content.items() if key not in known}
        return SavedModel(model, job, int(content["round"]), about)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"{path} holds no model with its job ({e!r}).") from e


def write_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain values, atomically.

    Raises:
        CheckpointError: it could not be written; the file that was there before stays.
    """
    try:
        with atomic_writer(path) as stream:
            torch.save(content, stream)
            faults.reach(f"{path.stem}-{content.get('round')}")
    except (OSError, RuntimeError) as e:
        # torch reports a failed write as RuntimeError.
        raise CheckpointError(f"{path} could not be written ({e}); what was there before is unchanged.") from e


def read_tensors(path: Path) -> dict[str, Any]:
    """Read what :func:`write_tensors` wrote; nothing in the file can run.

    Raises:
        CheckpointError: it is missing, damaged, or of another format.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as e:
        raise CheckpointError(f"{path} does not exist.") from e
    except Exception as e:
        # torch.load has no error class of its own: a damaged file gives pickle, zip, runtime and EOF errors.
        raise CheckpointError(f"{path} cannot be read as a checkpoint ({type(e).__name__}).") from e
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a file of this toolkit's format {FORMAT}.")
    return content


def as_tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Return the arrays as tensors, in the same memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def as_arrays(tensors: dict[str, torch.Tensor]) -> Arrays:
    """Return the tensors as arrays, in the same memory."""
    return {name: tensor.numpy() for name, tensor in tensors.items()}
