"""Training scripts of one's own: FedMR by FLARE's Client API.

A script loops over ``receive()`` and ``send()``; the model, the data and the training are its own. Prototypes travel as
parameters, where every filter sees them, and the executor applies the site's policy to what the script sends: see
:mod:`fedmr_med.flare.script`. examples/client_script.py is a whole one::

    init()
    while is_running():
        task = receive()
        model.load_state_dict(task.model)
        loss = FedMRLoss.from_task(task, counts=counts, classifier=model.classifier)
        ...                                        # loss(features, logits, labels)
        send(model, class_sums=sums)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
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
from fedmr_med.methods.base import ClientHalf
from fedmr_med.methods.reshaping import ManifoldReshaping
from fedmr_med.prototypes import PARTS, ClassSums, Prototypes
from fedmr_med.schema import parse_yaml, validated
from fedmr_med.seeding import derive_seed
from fedmr_med.site.criterion import Criterion
from fedmr_med.site.criterion import build as build_criterion

__all__ = ["FedMRLoss", "Task", "get_site_name", "init", "is_running", "receive", "send"]

MODEL, PROTOTYPES, OWN, SUMS, CONFUSION = "model/", "prototypes/", "own_prototypes/", "class_sums/", "confusion"
JOB, SITE, SAMPLES = "fedmr_job", "fedmr_site", "fedmr_samples"


@dataclass(frozen=True)
class Task:
    """What the server asks for in a round.

    Attributes:
        model: the global weights and buffers by name, as ``load_state_dict`` takes them.
        prototypes: the global prototypes.
        job: the job's settings.
        round: number of this round, from 0.
        site: name of this site.
        own: this site's own prototypes of classes that it does not share, from the class sums that the script sent
            before. They came from this site's disk, not from the server.
    """

    model: dict[str, Tensor]
    prototypes: Prototypes
    job: JobConfig
    round: int
    site: str = ""
    own: Prototypes | None = None


class FedMRLoss(nn.Module):
    """The job's classification loss and FedMR's losses of one round, as the toolkit's own sites compute them.

    Args:
        reshaping: returns FedMR's losses on a device.
        classification: returns the classification loss, of logits (B, C) and labels (B,), on a device.
    """

    def __init__(
        self,
        reshaping: Callable[[torch.device], ManifoldReshaping],
        classification: Callable[[torch.device], Criterion],
    ):
        super().__init__()
        # Made when the first batch says where; made anew for another device.
        self._reshaping, self._classification = lru_cache(1)(reshaping), lru_cache(1)(classification)

    @classmethod
    def from_task(
        cls,
        task: Task,
        classification: Criterion | None = None,
        *,
        counts: Tensor | None = None,
        classifier: Callable[[Tensor], Tensor] | None = None,
    ) -> "FedMRLoss":
        """Return the loss of a task.

        Args:
            task: what the server asks for.
            classification: a classification loss of one's own, of logits (B, C) and labels (B,); None takes the job's.
            counts: (C,) this site's training images per class, where the job's losses depend on them. They stay here.
            classifier: the network's last layer, from features (n, d) to logits (n, C); the replay loss trains it.

        Raises:
            ConfigError: the job's method has none of FedMR's losses, or more than them; or ``counts`` or
                ``classifier`` are missing.
        """
        job, method = task.job, methods.build(task.job.method)
        options = method.reshaping
        if options is None or method.client_half is not ClientHalf:
            raise ConfigError(
                f"method.name: the loss of {job.method.name} is not FedMR's.", code="config.conflict", key="method.name"
            )
        needs = [
            *(["method.options.replay"] if options.replay > 0 else []),
            *(["method.options.negatives"] if options.negatives == "local" else []),
            *(["loss.class_weights"] if job.loss.class_weights == "local" and classification is None else []),
        ]
        if counts is None and needs:
            raise ConfigError(
                f"{needs[0]} needs the training images per class: FedMRLoss.from_task(task, counts=...).",
                code="config.missing",
                key="counts",
            )
        if classifier is None and options.replay > 0:
            raise ConfigError(
                "method.options.replay trains the classifier: FedMRLoss.from_task(task, classifier=model.classifier).",
                code="config.missing",
                key="classifier",
            )
        classify = classifier or nn.Identity()
        held = torch.zeros(job.task.num_classes, dtype=torch.int64) if counts is None else counts.cpu()
        # The draws of the toolkit's own sites.
        generator = torch.Generator().manual_seed(derive_seed(job.seed, task.site, task.round, "method"))

        def reshaping(device: torch.device) -> ManifoldReshaping:
            on_device = (held > 0).to(device)
            return ManifoldReshaping(
                options, task.prototypes, own=task.own, held=on_device, classify=classify, generator=generator
            )

        def criterion(device: torch.device) -> Criterion:
            return classification or build_criterion(job.loss, held.numpy(), device)

        return cls(reshaping, criterion)

    def forward(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar, given features (B, d), logits (B, C) and labels (B,)."""
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        classification = self._classification(features.device)(exact, labels)
        terms = self._reshaping(features.device).terms(features, labels)
        return torch.stack([classification, *terms.values()]).sum()


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
    for prefix, prototypes in ((PROTOTYPES, task.prototypes), (OWN, task.own)):
        if prototypes is not None:
            parameters |= {prefix + name: array for name, array in prototypes.arrays().items()}
    meta = {JOB: task.job.model_dump_json(), SITE: task.site}
    return FLModel(params=parameters, current_round=task.round, total_rounds=rounds, meta=meta)


def read_task(message: FLModel) -> Task:
    """Read what :func:`task_message` wrote."""
    arrays = {name: torch.as_tensor(np.array(value)) for name, value in message.params.items()}
    model = {name.removeprefix(MODEL): tensor for name, tensor in arrays.items() if name.startswith(MODEL)}
    prototypes = Prototypes(*(arrays[PROTOTYPES + part] for part in PARTS))
    own = Prototypes(*(arrays[OWN + part] for part in PARTS)) if OWN + PARTS[0] in arrays else None
    job = validated(JobConfig, parse_yaml(message.meta[JOB]), "the job of the task")
    return Task(model, prototypes, job, int(message.current_round), str(message.meta[SITE]), own)


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
