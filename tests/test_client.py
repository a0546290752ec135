"""Training scripts of one's own: what they get, what the policy makes of what they send, and the loss."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.executors.client_api_executor import ClientAPIExecutor
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from torch import nn

from fedmr_med import client
from fedmr_med.config import JobConfig
from fedmr_med.flare.script import ScriptExecutor, check_job, read_reply
from fedmr_med.methods.base import Batch, ClientHalf
from fedmr_med.models.job_network import build_network
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import CONFIG
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.recipes.job import FedMRJob
from fedmr_med.site.client_state import chain_folder
from fedmr_med.site.own import OwnPrototypes
from fedmr_med.wire.kinds import EXCHANGES
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers import containers as messages
from tests.helpers.errors import raises
from tests.helpers.site_at_work import SITE, SiteAtWork
from tests.helpers.small import CLOSED, OPEN, initial_state, lenient, small_hospital, small_job, task_for

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
    assert set(message.meta) == {client.JOB, client.SITE}
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


PAPER = {"variant": "paper", "mu1": 0.3, "mu2": 0.7}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lite": 3},
        {"max_age": 0},
        PAPER,
        PAPER | {"lite": 3},
        PAPER | {"prototypes": "one_hot"},
        PAPER | {"negatives": "local"},
        PAPER | {"terms": "inter", "margin": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("policy", [OPEN, CLOSED], ids=["shares", "opted out"])
def test_the_loss_is_that_of_the_toolkits_own_sites(
    options: dict[str, object], policy: SitePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's second round: one that opted out has prototypes of its own by then."""
    job = small_job(method={"options": options}, loss={"name": "focal", "class_weights": "local"})
    site = small_hospital("msk", job, tmp_path, policy)
    first = task_for(initial_state(job), job)
    known = Prototypes(
        torch.randn(first.prototypes.means.shape, generator=torch.Generator().manual_seed(0)),
        torch.arange(SIZE) < 3,
        torch.arange(SIZE) // 2,
    )
    second = replace(first, prototypes=known, round=1, accepted={"msk": 0})
    site.train(first)
    seen: list[tuple[Batch, torch.Tensor, nn.Module]] = []
    objective = ClientHalf.objective

    def recorded(half: ClientHalf, batch: Batch) -> dict[str, torch.Tensor]:
        terms = objective(half, batch)
        seen.append((batch, torch.stack([*terms.values()]).sum(), copy.deepcopy(half.local.network.classifier)))
        return terms

    with monkeypatch.context() as patch:
        patch.setattr(ClientHalf, "objective", recorded)
        site.train(second)
    store = OwnPrototypes(
        chain_folder(tmp_path / "msk", second.chain) / "own_prototypes",
        inertia=0.0,
        num_classes=SIZE,
        feature_size=known.means.shape[1],
    )
    received = client.Task({}, known, job, 1, site="msk", own=store.load(0))
    assert bool(received.own.available.any()) == (policy is CLOSED and "mu1" not in options), "anchored keeps its own"
    counts = torch.from_numpy(site.counts)
    at_step: list[nn.Module] = []
    loss = client.FedMRLoss.from_task(received, counts=counts, classifier=lambda features: at_step[-1](features))
    assert len(seen) == 3
    for batch, expected, classifier in seen:
        at_step.append(classifier)
        assert torch.equal(loss(batch.features, batch.logits, batch.labels), expected)


def test_the_loss_takes_another_classification_loss() -> None:
    job = small_job(method={"options": {"variant": "anchored"}})
    features, logits, labels = torch.randn(6, known().means.shape[1]), torch.randn(6, SIZE), torch.arange(6)
    task = client.Task({}, Prototypes.none(SIZE, features.shape[1]), job, 0)
    assert client.FedMRLoss.from_task(task, lambda logits, labels: torch.tensor(7.0))(features, logits, labels) == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"method": {"options": {"variant": "paper", "negatives": "local"}}},
        {"method": {"options": {"variant": "anchored"}}, "loss": {"class_weights": "local"}},
        {},
    ],
    ids=["negatives", "class weights", "replay"],
)
def test_a_loss_that_needs_the_sites_classes_asks_for_their_counts(changes: dict[str, dict[str, object]]) -> None:
    with raises("config.missing", "counts"):
        client.FedMRLoss.from_task(client.Task({}, known(), small_job(**changes), 0))


def test_a_loss_with_replay_asks_for_the_classifier_that_it_trains() -> None:
    with raises("config.missing", "classifier"):
        client.FedMRLoss.from_task(client.Task({}, known(), small_job(), 0), counts=torch.ones(SIZE, dtype=torch.int64))


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_a_method_whose_loss_is_another_has_no_loss_here(method: str) -> None:
    options = {"reshaping": {"variant": "anchored"}} if method == "fedprox" else {}
    job = small_job(method, method={"options": options})
    with raises("config.conflict", "method.name"):
        client.FedMRLoss.from_task(client.Task({}, known(), job, 0))


PRIVATE = {"clip": 1.0, "noise": 1.0}
NOT_FOR_SCRIPTS: dict[str, JobConfig] = {
    "federation.secure": small_job(federation={"secure": "statistics", "min_sites": 3}),
    "federation.private": small_job(federation={"private": PRIVATE}),
    "train.private": small_job(train={"private": PRIVATE}, method={"options": {"variant": "anchored"}}),
    "model.freeze_backbone": small_job("fedavg", model={"freeze_backbone": True}),
    "federation.buffers": small_job(federation={"buffers": "local"}),
    "method.options.logits.kind": small_job("fedavg", method={"options": {"logits": {"kind": "adjusted"}}}),
    "method.name": small_job("feddyn"),
}


SCRIPT_SITE = """\
data: {source: script}
policy: {share_prototypes: true, share_metrics: per_class, min_cell_count: 1, training: null}
"""


@pytest.mark.parametrize("key", NOT_FOR_SCRIPTS)
def test_a_script_site_refuses_by_name_what_it_cannot_keep(key: str, tmp_path: Path) -> None:
    job = NOT_FOR_SCRIPTS[key]
    with raises("config.conflict", key):
        check_job(job)
    at_work = SiteAtWork(tmp_path, SCRIPT_SITE, ScriptExecutor("script.py"), job=job)
    assert [at_work.answer(kind).get_return_code() for kind in EXCHANGES] == [CONFIG] * len(EXCHANGES)


@pytest.mark.parametrize("key", sorted(NOT_FOR_SCRIPTS.keys() - {"method.name"}))
def test_a_recipe_with_a_script_refuses_it_before_a_site_is_asked(key: str) -> None:
    job = NOT_FOR_SCRIPTS[key]
    with raises("config.conflict", key):
        FedMRJob(job, {}, script=Path(__file__))
    FedMRJob(job, {})


def test_a_job_that_a_script_can_keep_is_taken() -> None:
    for method in ("fedavg", "fedprox", "fedmr"):
        check_job(small_job(method))


def script_that(act: Callable[[client.Task], None], monkeypatch: pytest.MonkeyPatch) -> ScriptExecutor:
    """Return the executor of a script that does something with each task, and sends its model back."""

    def script(executor: object, name: str, shareable: Shareable, *_: object) -> Shareable:
        act(client.read_task(FLModelUtils.from_shareable(shareable)))
        message = client.written_reply(build_network(JOB), class_sums=sums(), samples=None, confusion=None)
        return FLModelUtils.to_shareable(message)

    monkeypatch.setattr(ClientAPIExecutor, "execute", script)
    return ScriptExecutor("script.py")


def test_a_site_keeps_prototypes_of_what_it_does_not_share_for_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[client.Task] = []
    shares_one = SCRIPT_SITE.replace("share_prototypes: true", "share_prototypes: [NV]")
    at_work = SiteAtWork(tmp_path, shares_one, script_that(received.append, monkeypatch), job=JOB)
    for number, accepted in enumerate(({}, {SITE: 0})):
        reply = at_work.answer(data=messages.encode_task(replace(task(), round=number, accepted=accepted)))
        sent = messages.decode_reply(reply, SITE, num_classes=SIZE, feature_size=known().means.shape[1])
        assert sent.prototypes.counts.tolist() == [0, 30] + [0] * 6
    assert [one.site for one in received] == [SITE] * 2
    assert not received[0].own.available.any()
    assert received[1].own.available.tolist() == [True, False, True] + [False] * 5, "NV is shared"


def test_a_policy_that_became_stricter_while_the_script_was_at_work_is_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opt_out(_: client.Task) -> None:
        at_work.site_file.write_text(SCRIPT_SITE.replace("share_prototypes: true", "share_prototypes: false"))

    at_work = SiteAtWork(tmp_path, SCRIPT_SITE, script_that(opt_out, monkeypatch), job=JOB)
    reply = at_work.answer(data=messages.encode_task(task()))
    assert messages.decode_reply(reply, SITE, num_classes=SIZE, feature_size=known().means.shape[1]).prototypes is None
