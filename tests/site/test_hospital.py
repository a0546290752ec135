"""A site at work: what it computes, what its policy lets out, and that it repeats itself exactly."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med import models
from fedmr_med.errors import CheckpointError
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import Prototypes
from fedmr_med.site.training import class_sums
from fedmr_med.wire.messages import SiteReply
from tests.helpers.errors import raises
from tests.helpers.small import CLOSED, OPEN, initial_state, lenient, small_hospital, small_job, task_for

# Anchored FedMR keeps prototypes of what it withholds, at the site; the paper's has no use for them.
PAPER = {"options": {"variant": "paper"}}


def reply(tmp_path: Path, site: str = "vienna-dias", policy: SitePolicy = OPEN, **changes: object) -> SiteReply:
    job = small_job(**changes)
    return small_hospital(site, job, tmp_path, policy).train(task_for(initial_state(job), job))


def equal_models(a: SiteReply, b: SiteReply) -> bool:
    return all(np.array_equal(a.model[name], b.model[name]) for name in a.model)


def test_the_same_task_gives_the_same_reply_in_a_new_process_or_the_same_one(tmp_path: Path) -> None:
    job = small_job()
    task = task_for(initial_state(job), job)
    hospital = small_hospital("msk", job, tmp_path)
    first, again = hospital.train(task), hospital.train(task)
    fresh = small_hospital("msk", job, tmp_path).train(task)
    assert equal_models(first, again)
    assert equal_models(first, fresh)
    assert torch.equal(first.prototypes.sums, fresh.prototypes.sums)


def test_another_seed_another_round_another_site_train_differently(tmp_path: Path) -> None:
    base = reply(tmp_path)
    assert not equal_models(base, reply(tmp_path, seed=1))
    job = small_job()
    state = initial_state(job)
    later = small_hospital("vienna-dias", job, tmp_path).train(task_for(replace(state, round=1), job))
    assert not equal_models(base, later)


def test_prototypes_are_sums_of_the_trained_network_over_shared_classes(tmp_path: Path) -> None:
    job = small_job()
    hospital = small_hospital("vienna-dias", job, tmp_path)
    answer = hospital.train(task_for(initial_state(job), job))
    everything = class_sums(hospital.network, hospital.batches.plain, 8)
    assert everything.counts.tolist() == hospital.counts.tolist()
    shared = hospital.counts >= 10
    assert 0 < shared.sum() < (hospital.counts > 0).sum(), "the demo must hold rare classes here"
    assert answer.prototypes.counts.tolist() == (hospital.counts * shared).tolist()
    torch.testing.assert_close(answer.prototypes.sums, everything.sums * torch.from_numpy(shared)[:, None])


def test_opting_out_changes_the_prototypes_and_nothing_else(tmp_path: Path) -> None:
    job = small_job()
    state = initial_state(job)
    known = Prototypes(
        torch.randn(*state.prototypes.means.shape), torch.ones(8, dtype=torch.bool), torch.zeros(8, dtype=torch.int64)
    )
    task = task_for(replace(state, prototypes=known), job)
    sharing = small_hospital("msk", job, tmp_path).train(task)
    silent = small_hospital("msk", job, tmp_path, CLOSED).train(task)
    assert silent.prototypes is None
    assert sharing.prototypes is not None
    assert equal_models(sharing, silent)
    assert silent.report.terms["anchor"] > 0


def test_opting_out_class_by_class(tmp_path: Path) -> None:
    policy = lenient(share_prototypes=("NV",), share_metrics="none")
    answer = reply(tmp_path, policy=policy)
    assert answer.prototypes.counts.nonzero().flatten().tolist() == [1]


def test_nothing_is_computed_that_may_not_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("features were summed at a site that shares none")

    monkeypatch.setattr("fedmr_med.site.training_sums.class_sums", fail)
    assert reply(tmp_path, policy=CLOSED, method=PAPER).prototypes is None
    with pytest.raises(AssertionError):
        reply(tmp_path, policy=OPEN)


@pytest.mark.parametrize("options", [{"mu2": 0.0}, {"lite": 0}, {"terms": "intra"}])
def test_prototypes_that_no_loss_uses_are_neither_computed_nor_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    monkeypatch.setattr("fedmr_med.site.training_sums.class_sums", pytest.fail)
    assert reply(tmp_path, method={"options": options | {"replay": 0.0}}).prototypes is None


@pytest.mark.parametrize("level", ["none", "scalar", "per_class"])
def test_metrics_are_a_separate_choice(tmp_path: Path, level: str) -> None:
    answer = reply(tmp_path, policy=lenient(share_prototypes=True, share_metrics=level, min_class_count=1))
    if level == "none":
        assert answer.scores is None
        assert answer.report is None
    else:
        assert answer.scores.samples > 0
        assert (answer.scores.confusion is not None) == (level == "per_class")
        assert answer.report.model_fields_set == {"terms", "images_total", "images_skipped", "seconds"}


def test_a_job_can_ask_for_less_but_not_for_more(tmp_path: Path) -> None:
    less = {"share_prototypes": False, "share_metrics": "scalar"}
    assert reply(tmp_path, policy=OPEN).prototypes is not None
    job = small_job(policy=less)
    strict = small_hospital("bcn", job, tmp_path, OPEN).train(task_for(initial_state(job), job))
    assert strict.prototypes is None
    assert strict.scores.confusion is None
    generous = small_job(policy={"share_prototypes": True, "min_class_count": 1})
    closed = small_hospital("vienna-dias", generous, tmp_path, CLOSED)
    assert closed.train(task_for(initial_state(generous), generous)).prototypes is None


def test_fedavg_asks_for_no_prototypes(tmp_path: Path) -> None:
    job = small_job("fedavg")
    assert small_hospital("bcn", job, tmp_path).train(task_for(initial_state(job), job)).prototypes is None


def test_intra_alone_asks_for_no_prototypes(tmp_path: Path) -> None:
    answer = reply(tmp_path, method={"options": {"variant": "paper", "terms": "intra"}})
    assert answer.prototypes is None
    assert set(answer.report.terms) == {"classification", "intra"}


def test_learning_rate_zero_changes_no_parameter(tmp_path: Path) -> None:
    job = small_job(train={"lr": 0.0})
    state = initial_state(job)
    answer = small_hospital("msk", job, tmp_path).train(task_for(state, job))
    assert all(np.array_equal(answer.model[name], state.model[name]) for name in state.parameters)


def test_local_models_leave_only_where_both_sides_agree(tmp_path: Path) -> None:
    asked = {"share_prototypes": True, "share_metrics": "per_class", "allow_submit_model": True}
    job = small_job(policy=asked)
    task = task_for(initial_state(job), job)
    closed = small_hospital("msk", job, tmp_path / "a", OPEN)
    closed.train(task)
    with raises("policy.task-refused", "policy.allow_submit_model"):
        closed.trained_model()
    willing = small_hospital("msk", job, tmp_path / "b", lenient(**asked))
    with pytest.raises(CheckpointError):
        willing.trained_model()
    answer = willing.train(task)
    fresh = small_hospital("msk", job, tmp_path / "b", lenient(**asked))
    assert np.array_equal(fresh.trained_model()["classifier.weight"], answer.model["classifier.weight"])


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    job = small_job()
    other = small_job(model={"name": "narrow_resnet"})
    with raises("wire.form", "model"):
        small_hospital("msk", job, tmp_path).train(task_for(initial_state(other), job))


def test_bfloat16_training_works_and_differs_little(tmp_path: Path) -> None:
    exact, half = reply(tmp_path), reply(tmp_path, train={"precision": "bfloat16"})
    for name in exact.model:
        assert np.isfinite(half.model[name]).all()
        assert np.allclose(exact.model[name], half.model[name], atol=0.05)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_network_trains_to_the_same_model(tmp_path: Path) -> None:
    plain, compiled = reply(tmp_path), reply(tmp_path, train={"compile": True})
    assert plain.model.keys() == compiled.model.keys()
    for name in plain.model:
        np.testing.assert_allclose(plain.model[name], compiled.model[name], atol=1e-5)


def test_the_initial_model_depends_on_the_seed_alone() -> None:
    a, b, other = (initial_state(small_job(seed=seed)).model for seed in (0, 0, 1))
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert not np.array_equal(a["classifier.weight"], other["classifier.weight"])


@pytest.mark.nightly
@pytest.mark.slow
def test_workers_change_nothing(tmp_path: Path) -> None:
    assert equal_models(reply(tmp_path), reply(tmp_path, train={"workers": 1}))


def test_the_state_arrays_are_contiguous(tmp_path: Path) -> None:
    # Channels-last weights must not reach the wire with strides of their own.
    job = small_job(model={"name": "narrow_resnet"})
    hospital = small_hospital("msk", job, tmp_path)
    assert all(array.flags.c_contiguous for array in models.state_arrays(hospital.network).values())


def test_too_few_images_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedmr_med.data.base import Fold, SiteData

    empty = Fold(np.zeros((1, 27, 27, 3), dtype=np.uint8), np.zeros(1, dtype=np.int64))
    names = small_job().task.class_names
    monkeypatch.setattr("fedmr_med.data.load", lambda *_, **__: SiteData(empty, empty, names))
    with raises("data.too-few"):
        small_hospital("msk", small_job(), tmp_path)
