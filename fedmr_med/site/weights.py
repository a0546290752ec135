"""Whether a chain starts from the job's own weights, or from those that it names.

Who chooses the weights chooses the question: a network can be made so that the mean of a class is one patient's picture
(SECURITY.md). A site therefore draws the job's weights itself and compares. Later rounds have no weights to compare
with, except the part of a network that is frozen.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np

from fedmr_med import models
from fedmr_med.arrays import Arrays, difference, forms_of, weights_digest
from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError, WireError
from fedmr_med.files import write_text
from fedmr_med.methods.plan import head_exchange
from fedmr_med.models.job_network import are_public, build_network, whole_network, without_pretrained
from fedmr_med.privacy.refusals import NoFeaturesError, WeightsError
from fedmr_med.site.client_state import chain_folder
from fedmr_med.wire.kinds import VALIDATE
from fedmr_med.wire.messages import Backbone, TrainTask, digest_of

START_FILE, FROZEN_FILE = "start.sha256", "frozen.digest"
_CLASSIFIER = "classifier."
_TOLERANCE = {"float32": 1e-5, "float16": 1e-3}
"""Difference relative to an array's largest value: processors draw normal numbers that differ in the last bits."""


class StartingWeights:
    """Compares the weights that a chain starts from with the job.

    Args:
        state_folder: where the site keeps which weights a chain started from, and which it froze.
        demanded: whether a job that names no weights has to start from its own.
    """

    def __init__(self, job: JobConfig, state_folder: Path, *, demanded: bool):
        self._job, self._folder, self._demanded = job, state_folder, demanded

    def check(self, kind: str, task: TrainTask) -> None:
        """Look at a task whose form was checked.

        Raises:
            WireError: it has not the form of a first task.
            WeightsError: it starts from other weights.
        """
        backbone = task.backbone
        if backbone is not None and backbone.arrays and digest_of(backbone.arrays) != backbone.digest:
            raise WireError("the frozen part is not what its digest says", code="wire.digest", key="backbone")
        if task.round == 0 and (task.averaged or (backbone is not None and not backbone.arrays)):
            raise WireError("the first task has another model to score, or not all of it", code="wire.form")
        sent = task.weights if task.round == 0 else {} if backbone is None else backbone.arrays
        # Without rounds the closed-form head is scored in the place of the first classifier.
        if kind == VALIDATE and self._job.federation.rounds == 0 and head_exchange(self._job) != "none":
            sent = features_only(sent)
        if self._job.model.weights is not None:
            self._check_named(self._job.model.weights, sent, task)
        elif self._demanded and sent:
            self._check_own(sent, task)
        if backbone is not None:
            self._check_frozen(backbone, task.chain)

    def _check_frozen(self, backbone: Backbone, chain: str) -> None:
        """Compare with what the chain froze: a digest alone must not bring features of another job's network back."""
        file = chain_folder(self._folder, chain) / FROZEN_FILE
        known = _read(file)
        if known is None and not backbone.arrays:
            raise NoFeaturesError("the site has not seen the frozen network of this chain", code="wire.no-features")
        if known not in (None, backbone.digest):
            raise WeightsError(
                "The server sent another frozen network than before in this chain.",
                code="weights.other",
                key="backbone",
            )
        write_text(file, backbone.digest)

    def _check_named(self, named: str, sent: Arrays, task: TrainTask) -> None:
        """Compare with the digest that the job names; where the classifier is another, with what came before it."""
        if task.round:
            return
        file, features = chain_folder(self._folder, task.chain) / START_FILE, weights_digest(features_only(sent))
        if weights_digest(sent) == named:
            write_text(file, features)
        elif len(sent) != len(features_only(sent)) or _read(file) != features:
            raise WeightsError(
                f"The server sent weights with SHA-256 {weights_digest(sent)}; the job names {named} (model.weights).",
                code="weights.other",
                key="model.weights",
            )

    def _check_own(self, sent: Arrays, task: TrainTask) -> None:
        """Compare with the weights that this site draws from the job's seed."""
        job = self._job
        own = {name: array for name, array in _own_weights(job.model_dump_json()).items() if name in sent}
        if found := difference(sent, forms_of(own)):
            raise WireError(f"the model {found}", code="wire.form", key="model")
        named = str(job.model.options.get("pretrained", "none"))
        if named != "none":
            if are_public(job, sent):
                sent, own = without_pretrained(sent), without_pretrained(own)
            else:
                self._refuse(task, f"this site does not know model.options.pretrained: {named}")
        if not _equal(sent, own, _TOLERANCE[job.federation.wire]):
            self._refuse(task, f"they are not those that the job's seed {job.seed} draws here")

    def _refuse(self, task: TrainTask, reason: str) -> None:
        raise WeightsError(
            f"The server sent weights with SHA-256 {weights_digest(task.weights)}: {reason}. A job that brings weights "
            "names them in model.weights; `fedmr-med site jobs --approve ID` then lets it start.",
            code="weights.not-the-jobs",
            key="model.weights",
        )


def features_only(arrays: Arrays) -> Arrays:
    """Return all arrays but the classifier's."""
    return {name: array for name, array in arrays.items() if not name.startswith(_CLASSIFIER)}


def _equal(arrays: Arrays, others: Arrays, tolerance: float) -> bool:
    """Whether arrays of the same forms are equal, floating-point numbers to within a share of the largest."""
    for name, other in others.items():
        most = tolerance * float(np.abs(other).max(initial=0)) if other.dtype.kind == "f" else 0.0
        if not bool((np.abs(arrays[name].astype(np.float64) - other) <= most).all()):
            return False
    return True


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, ValueError) as e:
        raise CheckpointError(
            f"{path} cannot be read: restore it from a backup, or start a new chain.", code="file.unreadable"
        ) from e


@lru_cache(maxsize=1)
def _own_weights(job: str) -> Arrays:
    """Return the weights that a job's seed draws, the frozen part included."""
    settings = JobConfig.model_validate_json(job)
    whole = models.state_arrays(whole_network(settings)) if settings.model.freeze_backbone else {}
    return whole | models.state_arrays(build_network(settings))
