"""The check of a site's training floors: of a job before it trains, and of what the server sends in each round."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.arrays import weights_digest
from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.files import write_text
from fedmr_med.network import Network
from fedmr_med.privacy.floors import HELD_OUT, VALIDATION
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import FloorError
from fedmr_med.site.client_state import chain_folder
from fedmr_med.site.training import local_steps
from fedmr_med.site.weights import features_only
from fedmr_med.wire.kinds import TRAIN, VALIDATE
from fedmr_med.wire.messages import TrainTask

ANSWERED_FILE = "answered.json"
_CLASSIFIERS = 2  # of one network in one round: its own, and the closed-form head


class SiteFloors:
    """What one site demands of a job. Every check of a floor raises :class:`FloorError`, naming the key of the policy.

    What it has answered is kept in ``state_folder``, per chain.
    """

    def __init__(self, policy: SitePolicy, state_folder: Path):
        self.policy, self.floors = policy, policy.training
        self.state_folder = state_folder

    def check_job(self, job: JobConfig) -> None:
        """Look at a job's settings; no image has to be read for it.

        Raises:
            PolicyError: a key that an installed package adds to the policy refuses the job.
        """
        self.policy.check_job(job)
        self.policy.check_training_noise(job.train.noise)
        floors = self.floors
        if floors is None:
            return
        names = (("method", job.method.name, floors.methods), ("model", job.model.name, floors.models))
        for kind, name, allowed in names:
            if allowed is not None and name not in allowed:
                raise FloorError(kind, f"{kind}.name is {name}; policy.training.{kind}s has {', '.join(allowed)}.")
        size, lr, sites = job.train.batch_size, job.train.lr, job.federation.min_sites
        if not floors.min_batch_size <= size <= floors.max_batch_size:
            bounds = f"min_batch_size {floors.min_batch_size} and max_batch_size {floors.max_batch_size}"
            raise FloorError("batch_size", f"train.batch_size is {size}; policy.training has {bounds}.")
        if not floors.min_lr <= lr <= floors.max_lr:
            bounds = f"min_lr {floors.min_lr:g} and max_lr {floors.max_lr:g}"
            raise FloorError("lr", f"train.lr is {lr:g}; policy.training has {bounds}.")
        if sites < floors.min_sites:
            reason = f"federation.min_sites is {sites}; policy.training.min_sites asks for {floors.min_sites}."
            raise FloorError("sites", reason)
        if job.head.held_out != HELD_OUT or job.train.validation not in VALIDATION:
            raise FloorError(
                "held_out",
                f"head.held_out is {job.head.held_out:g} and train.validation {job.train.validation:g}; a site with "
                f"training floors sets {HELD_OUT:g} aside, and none or {VALIDATION[-1]:g}.",
            )
        if floors.demands_more_than(job.federation.secure):
            reason = f"federation.secure is {job.federation.secure}; policy.training.secure asks for {floors.secure}."
            raise FloorError("secure", reason)

    def check_day(self, answered: int) -> None:
        """Look at the number of other jobs that were answered in the last 24 hours."""
        most = None if self.floors is None else self.floors.max_jobs_per_day
        if most is not None and answered >= most:
            reason = f"{most} jobs were answered within a day, policy.training.max_jobs_per_day."
            raise FloorError("jobs_per_day", reason)

    def check_amount(self, job: JobConfig, samples: int) -> None:
        """Look at a round of training on ``samples`` local images."""
        floors = self.floors
        if floors is None or job.survey:
            return
        size, steps = job.train.batch_size, local_steps(samples, job.train)
        if samples <= size * (floors.min_batches - 1):
            raise FloorError(
                "batch_size",
                f"train.batch_size {size} is too much for {samples} training images: policy.training.min_batches asks "
                f"for {floors.min_batches} batches.",
            )
        if steps < floors.min_updates:
            reason = f"a round takes {steps} steps; policy.training.min_updates asks for {floors.min_updates}."
            raise FloorError("updates", reason)

    def check_model(self, task: TrainTask, network: Network) -> None:
        """Look at the values of a task whose form was checked."""
        if self.floors is None:
            return
        sent = task.model | {f"method state {name}": array for name, array in task.method.items()}
        sent |= {f"averaged {name}": array for name, array in task.averaged.items()}
        sent["prototypes"] = task.prototypes.means.numpy()
        if task.backbone is not None:
            sent |= task.backbone.arrays
        for name, array in sent.items():
            norm = float(np.linalg.norm(array.astype(np.float64)))
            if array.dtype.kind == "f" and norm > self.floors.max_norm:
                limit = f"policy.training.max_norm allows {self.floors.max_norm:.3g}"
                raise FloorError("norm", f"the server sent {name!r} with norm {norm:.3g}; {limit}.")
        weight = getattr(network.classifier, "weight", None)  # a fixed classifier is not sent
        heads = [name for name, tensor in network.named_parameters() if tensor is weight]
        spread = min((head_spread(task.model[name]) for name in heads), default=np.inf)
        if spread < self.floors.min_head_spread:
            raise FloorError(
                "head",
                f"the rows of the classifier that the server sent differ by {spread:.2g} of a fresh layer's; "
                f"policy.training.min_head_spread asks for {self.floors.min_head_spread:g}.",
            )

    def check_repeat(self, kind: str, task: TrainTask) -> None:
        """Look whether an exchange of the round was answered for another model already.

        A round is trained from one model, and scored with one network: with its own classifier and with its closed-form
        head.
        """
        if self.floors is None or self.floors.repeat_rounds:
            return
        answered = self._answered(task)
        for name, (found, most) in _asked(kind, task).items():
            known = answered.get(name, [])
            if found not in known and len(known) >= most:
                raise FloorError(
                    "repeat",
                    f"round {task.round + 1} of chain {task.chain} was answered for another model; a new chain, or "
                    "policy.training.repeat_rounds, lets it start.",
                )

    def note_answered(self, kind: str, task: TrainTask) -> None:
        """Write down that a task is about to be answered."""
        if self.floors is None or self.floors.repeat_rounds:
            return
        answered = self._answered(task)
        for name, (found, _) in _asked(kind, task).items():
            answered[name] = sorted({*answered.get(name, []), found})
        write_text(self._file(task), json.dumps(answered))

    def _answered(self, task: TrainTask) -> dict[str, list[str]]:
        """Return the digests of what was answered in each round of the chain."""
        path = self._file(task)
        if not path.exists():
            return {}
        try:
            return {name: list(found) for name, found in dict(json.loads(path.read_text(encoding="utf-8"))).items()}
        except (OSError, ValueError, TypeError) as e:
            raise CheckpointError(
                f"{path} cannot be read: restore it from a backup, or start a new chain.", code="file.unreadable"
            ) from e

    def _file(self, task: TrainTask) -> Path:
        return chain_folder(self.state_folder, task.chain) / ANSWERED_FILE


def head_spread(weight: npt.NDArray[Any]) -> float:
    """Return how far the rows of a classifier (C, d) differ; about 1 for a layer as torch initialises it."""
    rows = weight.astype(np.float64)
    fresh = 1 / np.sqrt(3 * rows.shape[1])  # the standard deviation of torch's uniform initialisation
    return float(np.sqrt(np.mean((rows - rows.mean(0)) ** 2)) / fresh)


def _asked(kind: str, task: TrainTask) -> dict[str, tuple[str, int]]:
    """Return digests of what a task asks about, by a name in the round, and how many others each may stand beside."""
    if kind == TRAIN:
        return {str(task.round): (task.digest, 1)}
    features = features_only(task.model)
    frozen = "" if task.backbone is None else task.backbone.digest
    asked = {f"{task.round} network": (weights_digest(features) + frozen, 1)}
    if kind == VALIDATE:
        classifier = {name: array for name, array in task.model.items() if name not in features}
        asked[f"{task.round} classifier"] = (weights_digest(classifier), _CLASSIFIERS)
    return asked
