"""An executor for training scripts of one's own, which talk by FLARE's Client API: see :mod:`fedmr_med.client`.

The script gets model and prototypes as parameters. What it sends is read strictly and made into a reply of ours under
the site's policy, so the server treats it like any other. A locked site does not list this class: the code is foreign.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.executors.client_api_executor import ClientAPIExecutor
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmr_med import client, methods
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError, FedMRError, PolicyError, WireError
from fedmr_med.evaluation.metrics import scores
from fedmr_med.flare import context
from fedmr_med.flare.executor import answered
from fedmr_med.models.job_network import build_network
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.site.client_state import chain_folder
from fedmr_med.site.engine import Site
from fedmr_med.site.own import OwnPrototypes
from fedmr_med.site.release import permitted
from fedmr_med.site.training import Aborted
from fedmr_med.site.view import SiteView
from fedmr_med.site.weights import StartingWeights
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.statistics.scores import SCORES
from fedmr_med.wire.kinds import EXCHANGES, TRAIN
from fedmr_med.wire.messages import SiteReply, TrainTask


class ScriptExecutor(ClientAPIExecutor):
    """Lets a script, in the job's ``custom`` folder, answer ``train``.

    ``validate``, ``head`` and ``survey`` are answered without figures, as the script has the data.
    """

    def __init__(self, task_script_path: str, task_script_args: str = ""):
        super().__init__(
            execution_mode="in_process", task_script_path=task_script_path, task_script_args=task_script_args
        )
        self.task_script_path = task_script_path
        self.task_script_args = task_script_args

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer a task; see :func:`fedmr_med.flare.executor.answered`."""
        if task_name not in EXCHANGES:
            return make_reply(ReturnCode.TASK_UNKNOWN)

        def ask(task: FLModel) -> FLModel:
            given = FLModelUtils.to_shareable(task)
            answer = super(ScriptExecutor, self).execute(AppConstants.TASK_TRAIN, given, fl_ctx, abort_signal)
            if abort_signal.triggered:
                raise Aborted
            if answer.get_return_code() != ReturnCode.OK:
                raise FedMRError("The script gave no answer.", code="task.failed")
            return FLModelUtils.from_shareable(answer)

        site = Site(context.site_views(fl_ctx), lambda view: _Script(view, ask))
        return answered(self, site, task_name, shareable, fl_ctx, abort_signal)


class _Script:
    """Answers with what a script makes of the task, which it is given by ``ask``."""

    def __init__(self, view: SiteView, ask: Callable[[FLModel], FLModel]):
        check_job(view.job)
        self._view, self._ask = view, ask

    def train(self, task: TrainTask, should_stop: Callable[[], bool]) -> SiteReply:
        job, policy, floors = self._view.job, self._view.policy, self._view.floors
        folder, site = self._view.place.state_folder, self._view.place.name
        floors.check_model(task, build_network(job))
        floors.check_repeat(TRAIN, task)
        StartingWeights(job, folder, demanded=policy.training is not None).check(TRAIN, task)
        model = {name: torch.from_numpy(array) for name, array in task.model.items()}
        own, accepted = _own_prototypes(job, task, folder), task.accepted.get(site)
        kept = None if own is None else own.load(accepted)
        given = client.Task(model, task.prototypes, job, task.round, site, kept)
        said = self._ask(client.task_message(given, task.rounds))
        reply = read_reply(said, site, task, job, self._view.settings.policy)
        if own is not None and (sums := class_sums(said, job, task)) is not None:
            own.save(task.round, _withheld(sums, reply), accepted)
        floors.check_amount(job, reply.samples)
        floors.note_answered(TRAIN, task)
        return reply

    def validate(self, task: TrainTask) -> SiteReply:
        return SiteReply(self._view.place.name, task.round)

    head_statistics = survey = validate

    def trained_model(self) -> Arrays:
        raise PolicyError("A script keeps its model.", code="policy.task-refused")


def read_reply(answer: FLModel, site: str, task: TrainTask, job: JobConfig, policy: SitePolicy) -> SiteReply:
    """Return the reply that the policy allows of what a script sent.

    Raises:
        WireError: it is not what :func:`fedmr_med.client.send` makes.
    """
    names, allowed = job.task.class_names, policy.restricted_by(job.policy)
    arrays = {name: np.asarray(value) for name, value in dict(answer.params or {}).items()}
    model = {
        name.removeprefix(client.MODEL): array.astype(task.model[name.removeprefix(client.MODEL)].dtype)
        for name, array in arrays.items()
        if name.startswith(client.MODEL) and name.removeprefix(client.MODEL) in task.model
    }
    sums = class_sums(answer, job, task)
    if sums is not None:
        counts = sums.counts.numpy()
        samples = policy.released_samples(counts, names)
        shared = allowed.shareable_classes(counts, names) & methods.build(job.method).uses_prototypes
        sums = sums.only(torch.from_numpy(shared)) if shared.any() else None
    else:
        told = (answer.meta or {}).get(client.SAMPLES)
        if type(told) is not int or told < 1:
            raise WireError("the script's answer says neither class sums nor samples", code="wire.form", key="samples")
        samples = told
    confusion = arrays.get(client.CONFUSION)
    if confusion is not None and (confusion.shape != (len(names),) * 2 or confusion.dtype.kind not in "iu"):
        raise WireError(
            f"the script's confusion is not {len(names)} x {len(names)} counts", code="wire.form", key="confusion"
        )
    reply = SiteReply(
        site=site,
        round=task.round,
        samples=samples,
        settings=job.digest(),
        model=model,
        bytes_down=task.bytes,
    ).with_statistic(PROTOTYPES, sums)
    if confusion is not None:
        reply = reply.with_statistic(SCORES, scores(confusion.astype(np.int64)))
    return permitted(TRAIN, reply, allowed, reply_form(job))


def class_sums(answer: FLModel, job: JobConfig, task: TrainTask) -> ClassSums | None:
    """Return the class sums that a script sent; None where it sent none.

    Raises:
        WireError: they do not fit the job.
    """
    given = [(answer.params or {}).get(client.SUMS + part) for part in ("sums", "counts")]
    if any(part is None for part in given):
        return None
    sums, counts = (np.asarray(part) for part in given)
    classes, size = job.task.num_classes, int(task.prototypes.means.shape[1])
    numeric = sums.dtype.kind in "fiu" and counts.dtype.kind in "iu"
    if not numeric or sums.shape != (classes, size) or counts.shape != (classes,):
        raise WireError(
            f"the script's class sums are not of {classes} classes and features of length {size}",
            code="wire.form",
            key="class_sums",
        )
    return ClassSums(torch.from_numpy(sums.astype(np.float32)), torch.from_numpy(counts.astype(np.int64)))


def _own_prototypes(job: JobConfig, task: TrainTask, folder: Path) -> OwnPrototypes | None:
    """Return the store of the site's own prototypes, where the method uses them."""
    reshaping = methods.build(job.method).reshaping
    if reshaping is None or not reshaping.keeps_own_prototypes:
        return None
    classes, size = task.prototypes.means.shape
    folder = chain_folder(folder, task.chain) / "own_prototypes"
    return OwnPrototypes(folder, inertia=reshaping.inertia, num_classes=classes, feature_size=size)


def _withheld(sums: ClassSums, reply: SiteReply) -> ClassSums:
    """Return the sums of the classes that the site holds and that do not leave."""
    held = sums.counts > 0
    return sums.only(held if reply.prototypes is None else held & (reply.prototypes.counts == 0))


def check_job(job: JobConfig) -> None:
    """Refuse, with the key, a job that wants more of a site than a script gives."""
    check_settings_for_script(job)
    method, network = methods.build(job.method), build_network(job)
    parameters = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    if method.keeps_state or method.server().payload_forms(parameters):
        raise ConfigError(
            f"method.name: {method.name} needs more of a site than a training script sends.",
            code="config.conflict",
            key="method.name",
        )


def check_settings_for_script(job: JobConfig) -> None:
    """Refuse, with the key, settings that a site keeps in its own training alone, not in that of a script."""
    logits = methods.build(job.method).options.logits
    kept_by_sites_alone = {
        "federation.secure": ("takes no part in secure sums", job.federation.secure != "none"),
        "federation.private": ("sends class sums without noise", job.federation.private is not None),
        "train.private": ("trains without noise", job.train.private is not None),
        "model.freeze_backbone": ("gets the whole network", job.model.freeze_backbone),
        "federation.buffers": ("sends its BatchNorm layers", job.federation.buffers == "local"),
        "method.options.logits.kind": ("has logits of its own", logits.kind != "plain"),
    }
    for key, (reason, asked) in kept_by_sites_alone.items():
        if asked:
            raise ConfigError(f"{key}: a training script {reason}.", code="config.conflict", key=key)
