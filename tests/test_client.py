"""Training scripts of one's own: what they get, what the policy makes of what they send, and the loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmr_med import client, methods
from fedmr_med.config import JobConfig
from fedmr_med.flare.script import _check_job, read_reply
from fedmr_med.methods.base import Batch
from fedmr_med.methods.reshaping import ManifoldReshaping
from fedmr_med.models.job_network import build_network
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers.errors import raises
from tests.helpers.methods import local_round
from tests.helpers.small import initial_state, lenient, small_job, task_for

JOB = small_job()
SIZE = 8


def known() -> Prototypes:
    """Prototypes of all classes but the last."""
    means = torch.randn(SIZE, build_network(JOB).feature_size, generator=torch.Generator().manual_seed(0))
    available = torch.arange(SIZE) < SIZE - 1
    return Prototypes(means * available[:, None], available, torch.zeros(SIZE, dtype=torch.int64))


def task() -> TrainTask:
    return replace(task_for(initial_state(JOB), JOB), prototypes=known())


def sums() -> ClassSums:
    counts = torch.tensor([20, 30, 5, 0, 0, 0, 0, 0])
    return ClassSums(counts[:, None] * torch.ones(SIZE, known().means.shape[1]), counts)


def answered(policy: SitePolicy, **sent: object) -> SiteReply:
    """Return the reply to a script that sends the received model back, over FLARE's own form of messages."""
    given = {"class_sums": None, "samples": None, "confusion": None} | sent
    message = client.written_reply(build_network(JOB), **given)
    again = FLModelUtils.from_shareable(FLModelUtils.to_shareable(message))
    return read_reply(again, "msk", task(), JOB, policy)


def test_a_script_gets_model_and_prototypes_as_parameters_and_nothing_of_them_as_metadata() -> None:
    model = {name: torch.from_numpy(array) for name, array in task().model.items()}
    message = client.task_message(client.Task(model, known(), JOB, 3), 9)
    assert set(message.meta) == {client.JOB}
    assert {"prototypes/means", "prototypes/available", "prototypes/age"} <= set(message.params)
    back = client.read_task(FLModelUtils.from_shareable(FLModelUtils.to_shareable(message)))
    assert (back.round, back.job) == (3, JOB)
    assert torch.equal(back.prototypes.means, known().means)
    build_network(JOB).load_state_dict(back.model)


def test_the_policy_decides_what_of_the_class_sums_leaves() -> None:
    shared = answered(lenient(share_prototypes=True), class_sums=sums())
    assert shared.prototypes.counts.tolist() == [20, 30, 0, 0, 0, 0, 0, 0], "5 images are too few"
    assert answered(lenient(share_prototypes=("NV",)), class_sums=sums()).prototypes.counts.tolist()[:2] == [0, 30]
    opted_out = answered(lenient(), class_sums=sums())
    assert opted_out.prototypes is None
    assert opted_out.samples == lenient().released_samples(sums().counts.numpy(), JOB.task.class_names)
    assert answered(lenient(), samples=57).samples == 60, "rounded"


def test_scores_leave_under_the_policy_too() -> None:
    confusion = np.diag([40, 20, 3, 0, 0, 0, 0, 0])
    assert answered(lenient(), class_sums=sums(), confusion=confusion).scores is None
    scored = answered(lenient(share_prototypes=True, share_metrics="per_class"), class_sums=sums(), confusion=confusion)
    assert scored.scores.samples == 60


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({}, "samples"),
        ({"class_sums/sums": np.zeros((3, 2)), "class_sums/counts": np.zeros(3, np.int64)}, "class_sums"),
        ({"confusion": np.zeros((2, 2), np.int64)}, "confusion"),
    ],
)
def test_what_is_no_answer_is_refused(parameters: dict[str, np.ndarray], key: str) -> None:
    meta = {client.SAMPLES: 10} if parameters else {}
    with raises("wire.form", key):
        read_reply(FLModel(params={"x": np.zeros(1), **parameters}, meta=meta), "msk", task(), JOB, lenient())


def test_an_answer_without_a_number_of_samples_is_refused_before_it_is_sent() -> None:
    with raises("config.missing", "class_sums"):
        client.send(build_network(JOB))


@pytest.mark.parametrize("options", [{}, {"variant": "paper", "mu1": 0.3, "mu2": 0.7}])
def test_the_loss_is_that_of_the_toolkits_own_sites(options: dict[str, object]) -> None:
    job = small_job(method={"options": options})
    generator = torch.Generator().manual_seed(1)
    size = known().means.shape[1]
    features, logits = torch.randn(12, size, generator=generator), torch.randn(12, SIZE, generator=generator)
    labels = torch.arange(12) % SIZE
    loss = client.FedMRLoss.from_task(client.Task({}, known(), job, 0))
    ours = objective(job, features, logits, labels)
    assert torch.allclose(loss(features, logits, labels), ours)


def objective(job: JobConfig, features: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    classification = torch.nn.functional.cross_entropy(logits, labels)
    local = replace(local_round(1, 0.0), prototypes=known(), counts=torch.ones(SIZE, dtype=torch.int64))
    terms = ManifoldReshaping(methods.build(job.method).reshaping, local).terms(
        Batch(labels, labels, features, logits, classification)
    )
    return classification + sum(terms.values())


def test_methods_and_settings_that_a_script_cannot_serve_are_refused() -> None:
    with raises("config.conflict", "method.name"):
        _check_job(small_job("feddyn"))
    with raises("config.conflict", "method.name"):
        client.FedMRLoss.from_task(client.Task({}, known(), small_job("fedavg"), 0))
