"""A model on disk: weights, and all that is needed to build the network again from that one file.

A chain's checkpoint is such a file too, with more in it. Each holds the SHA-256 of its content, so that damage shows;
whoever forges a file makes a new one.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from fedmr_med import faults, models
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data.transforms import normalisation
from fedmr_med.errors import CheckpointError, ConfigError
from fedmr_med.evaluation.clinical import FloatArray
from fedmr_med.evaluation.records import Withdrawal
from fedmr_med.evaluation.sets import key_of
from fedmr_med.files import atomic_writer
from fedmr_med.models.job_network import whole_network
from fedmr_med.models.norm import batch_norm_names
from fedmr_med.models.provenance import Provenance
from fedmr_med.prototypes import PARTS, Prototypes
from fedmr_med.registry import is_dotted
from fedmr_med.schema import brief, dump_yaml, parse_yaml, validated

FORMAT = 2
AVERAGED = "averaged"
"""Key of a checkpoint: parameters of the model that leaves, where a method goes on from another one."""

PROVENANCE, LINEAGE, SET_THRESHOLDS = "provenance", "lineage", "set_thresholds"
_DIGEST = "sha256"

_PLAIN = {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool}


@dataclass(frozen=True)
class SavedModel:
    """What a model file says.

    Attributes:
        model: weights and buffers by name.
        job: the settings it was trained with; class names, image size and transform among them.
        round: rounds of training that it had.
        about: further plain facts.
        provenance: where it comes from; None in files of earlier versions.
    """

    model: Arrays
    job: JobConfig
    round: int
    about: dict[str, Any]
    provenance: Provenance | None = None

    @property
    def is_demo(self) -> bool:
        """Whether it is known to have been trained on generated pictures alone."""
        return self.provenance is not None and self.provenance.demo

    def network(self) -> models.Network:
        """Return the network with these weights, in evaluation mode.

        Raises:
            CheckpointError: the weights do not fit the job's network, or some of them are at the sites alone.
        """
        self.check_whole()
        network = whole_network(self.job)
        models.load_arrays(network, self.model)
        return network.eval()

    def check_whole(self) -> None:
        """Refuse a global model whose BatchNorm layers each site keeps for itself: it has the initial ones.

        Raises:
            CheckpointError: so.
        """
        of_site = self.provenance is not None and self.provenance.site is not None
        if self.job.federation.buffers == "local" and not of_site and batch_norm_names(self.model):
            raise CheckpointError(
                "This global model has no BatchNorm layers of its own: with federation.buffers: local each site keeps "
                "the trained ones, and the file holds the initial ones. Use the model of a site, or buffers: average.",
                code="model.own-layers",
                key="federation.buffers",
            )

    @property
    def lineage(self) -> tuple[Withdrawal, ...]:
        """The sites that left the model's chain before it was made.

        Raises:
            CheckpointError: the file says so in a form that cannot be read.
        """
        told = self.about.get(LINEAGE, [])
        try:
            return tuple(Withdrawal.model_validate(entry) for entry in told)
        except (TypeError, ValueError) as e:
            raise CheckpointError(
                "the lineage of the model file cannot be read.", code="checkpoint.form", key=LINEAGE
            ) from e

    @property
    def temperature(self) -> float | None:
        """What to divide logits by, so that probabilities are calibrated; None where no site shared what it takes."""
        value = self.about.get("temperature")
        return value if isinstance(value, float) and value > 0 else None

    def set_thresholds(self, coverage: float) -> FloatArray:
        """Return from which probability on each class is in a set, (C,); see :mod:`fedmr_med.evaluation.sets`.

        Raises:
            CheckpointError: no score histograms left the sites with this model, or the thresholds cannot be read.
            ConfigError: they are of other coverages.
        """
        known = self.about.get(SET_THRESHOLDS)
        if known is None:
            raise CheckpointError(
                "This model has no thresholds for sets: score histograms must have left the sites in the job that "
                "trained it (share_metrics, min_class_count and min_cell_count of their policies).",
                code="model.no-sets",
                key="--coverage",
            )
        try:
            if key_of(coverage) not in known:
                raise ConfigError(
                    f"This model has sets of coverage {', '.join(known)}; give one of these.",
                    code="config.value",
                    key="--coverage",
                )
            least = np.array(known[key_of(coverage)], dtype=np.float64)
            if least.shape != (len(self.job.task.class_names),) or not ((least >= 0) & (least <= 1)).all():
                raise ValueError("not one probability for each class")
        except (TypeError, ValueError) as e:
            raise CheckpointError(
                "the thresholds of the model file cannot be read.", code="checkpoint.form", key=SET_THRESHOLDS
            ) from e
        return least

    @property
    def prototypes(self) -> Prototypes | None:
        """The global prototypes of the features, None where no class has one; CheckpointError if damaged."""
        if "prototypes" not in self.about:
            return None
        try:
            prototypes = prototypes_of(self.about["prototypes"])
        except (TypeError, ValueError) as e:
            raise CheckpointError(
                f"the prototypes of the model file cannot be read ({brief(repr(e))}).",
                code="checkpoint.form",
                key="prototypes",
            ) from e
        return prototypes if bool(prototypes.available.any()) else None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a model file, in hex, by which it is named."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def save_model(
    path: Path,
    model: Arrays,
    job: JobConfig,
    *,
    round_number: int,
    provenance: Provenance | None = None,
    **about: Any,
) -> None:
    """Write a model with what is needed to use it, where it comes from, and further plain facts.

    Raises:
        CheckpointError: it could not be written; the file that was there before stays.
    """
    write_tensors(path, described(model, job, round_number, provenance) | about)


def described(model: Arrays, job: JobConfig, round_number: int, provenance: Provenance | None = None) -> dict[str, Any]:
    """Return the part of the content that every model file has."""
    return {
        "format": FORMAT,
        "job": dump_yaml(job),
        "class_names": list(job.task.class_names),
        "normalisation": normalisation(job.task.transform, job.task.channels),
        "model": as_tensors(model),
        "round": round_number,
        PROVENANCE: (provenance or Provenance.of(job)).model_dump(mode="json"),
    }


def job_of(content: dict[str, Any], path: Path) -> JobConfig:
    """Return the job that a model file says it was trained with.

    Raises:
        CheckpointError: its settings are not valid.
        KeyError, TypeError, ValueError, AttributeError: the file holds none.
    """
    return validated(JobConfig, parse_yaml(content["job"]), f"the job in {path}", CheckpointError)


def as_list(prototypes: Prototypes) -> list[torch.Tensor]:
    """Return prototypes as a file holds them: means, availability and age."""
    return [prototypes.means, prototypes.available, prototypes.age]


def prototypes_of(content: Any) -> Prototypes:
    """Return the prototypes of a file; raise TypeError, ValueError if they are something else."""
    return Prototypes.from_arrays(as_arrays(dict(zip(PARTS, content, strict=True))))


def load_model(path: Path, *, allow_code: bool = False) -> SavedModel:
    """Read a model file or the model of a checkpoint.

    Args:
        allow_code: whether its network may be a class that the file names by a dotted path. Building that network
            imports and calls whatever is installed under this name, with arguments of the file's choice.

    Raises:
        CheckpointError: it cannot be read, or names such a class.
    """
    content = read_tensors(path)
    known = ("format", "job", "class_names", "normalisation", "model", AVERAGED, "round", PROVENANCE)
    try:
        job = job_of(content, path)
        if is_dotted(job.model.name) and not allow_code:
            raise CheckpointError(
                f"{path} names the class {job.model.name} for its network, which is no registered one; say "
                "--allow-code if you trust whoever made the file.",
                code="checkpoint.code",
                key="model.name",
            )
        model = as_arrays(content["model"]) | as_arrays(content.get(AVERAGED, {}))
        if not all(np.isfinite(array).all() for array in model.values() if array.dtype.kind == "f"):
            raise CheckpointError(f"{path} holds NaN or infinite weights.", code="checkpoint.not-finite")
        about = {key: value for key, value in content.items() if key not in known}
        told = content.get(PROVENANCE)
        provenance = None if told is None else validated(Provenance, told, f"the provenance in {path}", CheckpointError)
        return SavedModel(model, job, whole_number(content["round"]), about, provenance)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"{path} holds no model with its job ({brief(repr(e))}).", code="checkpoint.form") from e


def read_weights(path: Path) -> Arrays:
    """Read weights and buffers by name from a model file, or from a state dict as torch users save one.

    Raises:
        CheckpointError: it cannot be read, or holds something else.
    """
    content = _loaded(path, path, "weights")
    if isinstance(content, dict) and _DIGEST in content:
        content = _undamaged(content, path)
    for key in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    try:
        return as_arrays(dict(content))
    except (TypeError, ValueError) as e:
        raise CheckpointError(f"{path} holds no state dict ({brief(e)}).", code="checkpoint.form") from e


def write_tensors(
    path: Path,
    content: dict[str, Any],
    *,
    check: Callable[[dict[str, Any]], object] = lambda content: None,
    previous: Path | None = None,
) -> None:
    """Write tensors and plain values, atomically, once what was written can be read back.

    Args:
        check: looks at what was read back, and raises CheckpointError if it is not good.
        previous: keeps the file that was there before.

    Raises:
        CheckpointError: it could not be written; the file that was there before stays.
    """
    try:
        with atomic_writer(path, previous=previous) as stream:
            torch.save(content | {_DIGEST: _digest(content)}, stream)
            faults.reach(f"{path.stem}-{content.get('round')}")
            stream.seek(0)
            check(_read(stream, path))
    except (OSError, RuntimeError) as e:
        # torch reports a failed write as RuntimeError.
        raise CheckpointError(
            f"{path} could not be written ({e}); what was there before is unchanged.", code="file.not-writable"
        ) from e


def read_tensors(path: Path) -> dict[str, Any]:
    """Read what :func:`write_tensors` wrote; nothing in the file can run.

    Raises:
        CheckpointError: it is missing, damaged, or of another format.
    """
    try:
        with path.open("rb") as stream:
            return _read(stream, path)
    except FileNotFoundError as e:
        raise CheckpointError(f"{path} does not exist.", code="file.missing") from e
    except OSError as e:
        raise CheckpointError(f"{path} cannot be read: {e}.", code="file.unreadable") from e


def _loaded(source: Path | BinaryIO, path: Path, what: str) -> Any:
    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as e:
        # torch.load has no error class of its own: a damaged file gives pickle, zip, runtime and EOF errors.
        raise CheckpointError(f"{path} cannot be read as {what} ({type(e).__name__}).", code="file.unreadable") from e


def _read(stream: BinaryIO, path: Path) -> dict[str, Any]:
    content = _loaded(stream, path, "a checkpoint")
    if type(content) is not dict or type(content.get("format")) is not int or content["format"] != FORMAT:
        raise CheckpointError(f"{path} is not a file of this toolkit's format {FORMAT}.", code="file.version")
    # Files of earlier versions have no digest.
    return _undamaged(content, path) if _DIGEST in content else content


def _undamaged(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the content without its digest; raise CheckpointError if it is not what was written."""
    rest = {key: value for key, value in content.items() if key != _DIGEST}
    try:
        same = content[_DIGEST] == _digest(rest)
    except (TypeError, RuntimeError):
        same = False
    if not same:
        raise CheckpointError(
            f"{path} is damaged: it does not hold what was written. Take another copy of it.", code="file.damaged"
        )
    return rest


def _digest(content: Any) -> str:
    """Return the SHA-256, in hex, of nested tensors and plain values; raise TypeError if there is something else."""
    total = hashlib.sha256()
    _add(total, content)
    return total.hexdigest()


def _add(total: "hashlib._Hash", content: Any) -> None:
    """Add content to a hash. Every part says its kind and size, so that no two contents are one sequence of bytes."""
    if isinstance(content, torch.Tensor):
        dense = content.detach().contiguous()
        total.update(f"tensor {dense.dtype} {tuple(dense.shape)} ".encode())
        total.update(dense.reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(content, dict):
        total.update(f"dict {len(content)} ".encode())
        for key, value in content.items():
            _add(total, key)
            _add(total, value)
    elif isinstance(content, list | tuple):
        total.update(f"list {len(content)} ".encode())
        for value in content:
            _add(total, value)
    elif content is None or isinstance(content, str | int | float):
        text = repr(content).encode()
        total.update(f"{type(content).__name__} {len(text)} ".encode() + text)
    else:
        raise TypeError(f"a {type(content).__name__} is no plain value")


def whole_number(value: Any) -> int:
    """Return a whole number of a file; raise TypeError if it is something else, or negative."""
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def as_tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Return the arrays as tensors, in the same memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def as_arrays(tensors: Any) -> Arrays:
    """Return the tensors of a file as arrays, in the same memory.

    Raises:
        TypeError: something is not a named, dense tensor of plain numbers.
    """
    if type(tensors) is not dict:
        raise TypeError(f"a {type(tensors).__name__} where named tensors were expected")
    for name, tensor in tensors.items():
        if not (isinstance(name, str) and isinstance(tensor, torch.Tensor) and tensor.dtype in _PLAIN):
            raise TypeError(f"{name!r} is not a tensor of plain numbers")
        if tensor.layout is not torch.strided:
            raise TypeError(f"{name!r} is not a dense tensor")
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}
