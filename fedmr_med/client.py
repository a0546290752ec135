"""Training scripts of one's own: FedMR by FLARE's Client API.

A script loops over ``receive()`` and ``send()``; the model, the data and the training are its own. Prototypes travel as
parameters, where every filter sees them, and the executor applies the site's policy to what the script sends: see
:mod:`fedmr_med.flare.script`. examples/client_script.py is a whole one::

    init()
    while is_running():
        task = receive()
        model.load_state_dict(task.model)
        loss = FedMRLoss.from_task(task)
        ...                                        # loss(features, logits, labels)
        send(model, class_sums=sums)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from nvflare import client as flare
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.client import get_site_name, init, is_running
from torch import Tensor, nn

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.losses import anchor_loss, inter_class_loss, intra_class_loss
from fedmr_med.methods.reshaping import ReshapingOptions
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.schema import parse_yaml, validated

__all__ = ["FedMRLoss", "Task", "get_site_name", "init", "is_running", "receive", "send"]

MODEL, PROTOTYPES, SUMS, CONFUSION = "model/", "prototypes/", "class_sums/", "confusion"
JOB, SAMPLES = "fedmr_job", "fedmr_samples"


@dataclass(frozen=True)
class Task:
    """What the server asks for in a round.

    Attributes:
        model: the global weights and buffers by name, as ``load_state_dict`` takes them.
        prototypes: the global prototypes.
        job: the job's settings.
        round: number of this round, from 0.
    """

    model: dict[str, Tensor]
    prototypes: Prototypes
    job: JobConfig
    round: int


class FedMRLoss(nn.Module):
    """Cross-entropy and FedMR's losses of one round, as the job's method weights them.

    Args:
        prototypes: the global prototypes.
        options: of the losses.
        classification: the classification loss, of logits (B, C) and labels (B,).
    """

    def __init__(self, prototypes: Prototypes, options: ReshapingOptions, classification: nn.Module | None = None):
        super().__init__()
        self.options = options
        self.classification = nn.CrossEntropyLoss() if classification is None else classification
        young = prototypes.younger_than(options.max_age)
        self.register_buffer("means", young.means)
        self.register_buffer("available", young.available)
        self.means: Tensor
        self.available: Tensor

    @classmethod
    def from_task(cls, task: Task, classification: nn.Module | None = None) -> "FedMRLoss":
        """Return the loss of a task.

        Raises:
            ConfigError: the job's method has none of FedMR's losses.
        """
        options = methods.build(task.job.method).reshaping
        if options is None:
            raise ConfigError(
                f"method.name: {task.job.method.name} has none of FedMR's losses.",
                code="config.conflict",
                key="method.name",
            )
        return cls(task.prototypes, options, classification)

    def forward(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar, given features (B, d), logits (B, C) and labels (B,)."""
        options = self.options
        total: Tensor = self.classification(logits, labels)
        if options.mu1 and options.terms != "inter":
            total = total + options.mu1 * intra_class_loss(features, labels, scale=options.scale)
        if not options.mu2 or options.terms == "intra":
            return total
        if options.variant == "anchored":
            anchor = anchor_loss(features, labels, self.means, available=self.available, radius=options.radius)
            return total + options.mu2 * anchor
        inter = inter_class_loss(features, labels, self.means, available=self.available, margin=options.margin)
        return total + options.mu2 * inter


def receive() -> Task | None:
    """Wait for the next task; None when there is none any more."""
    message = flare.receive()
    return None if message is None else read_task(message)


def send(
    model: nn.Module | Mapping[str, Tensor],
    *,
    class_sums: ClassSums | None = None,
    samples: int | None = None,
    confusion: npt.NDArray[np.int64] | None = None,
) -> None:
    """Answer the task. What of it leaves is decided by the site's policy, not here.

    Args:
        model: the trained network or its state dict.
        class_sums: of the features of the training data, in evaluation mode.
        samples: number of training samples; not needed with ``class_sums``, which count them.
        confusion: (C, C) counts of the *received* model on the local test data, row = true class.

    Raises:
        ConfigError: neither ``class_sums`` nor ``samples`` is given.
    """
    flare.send(written_reply(model, class_sums=class_sums, samples=samples, confusion=confusion))


def task_message(task: Task, rounds: int) -> FLModel:
    """Return a task in FLARE's form; prototypes are parameters, never metadata."""
    parameters: dict[str, Any] = {MODEL + name: tensor.numpy() for name, tensor in task.model.items()}
    for part in ("means", "available", "age"):
        parameters[PROTOTYPES + part] = getattr(task.prototypes, part).numpy()
    meta = {JOB: task.job.model_dump_json()}
    return FLModel(params=parameters, current_round=task.round, total_rounds=rounds, meta=meta)


def read_task(message: FLModel) -> Task:
    """Read what :func:`task_message` wrote."""
    arrays = {name: torch.as_tensor(np.array(value)) for name, value in message.params.items()}
    model = {name.removeprefix(MODEL): tensor for name, tensor in arrays.items() if name.startswith(MODEL)}
    prototypes = Prototypes(*(arrays[PROTOTYPES + part] for part in ("means", "available", "age")))
    job = validated(JobConfig, parse_yaml(message.meta[JOB]), "the job of the task")
    return Task(model, prototypes, job, int(message.current_round))


def written_reply(
    model: nn.Module | Mapping[str, Tensor],
    *,
    class_sums: ClassSums | None,
    samples: int | None,
    confusion: npt.NDArray[np.int64] | None,
) -> FLModel:
    """Return an answer in FLARE's form; see :func:`send`."""
    if class_sums is None and samples is None:
        raise ConfigError(
            "send: give class_sums, or the number of training samples.", code="config.missing", key="class_sums"
        )
    state = model.state_dict() if isinstance(model, nn.Module) else model
    parameters: dict[str, Any] = {MODEL + name: t.detach().cpu().numpy() for name, t in state.items()}
    if class_sums is not None:
        parameters[SUMS + "sums"] = class_sums.sums.detach().cpu().numpy()
        parameters[SUMS + "counts"] = class_sums.counts.detach().cpu().numpy()
    if confusion is not None:
        parameters[CONFUSION] = np.asarray(confusion)
    return FLModel(params=parameters, meta={} if samples is None else {SAMPLES: int(samples)})
