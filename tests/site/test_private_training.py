"""Private training: what is drawn, what noise is added, what it costs, and what a site refuses."""

import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, units
from fedmr_med.errors import ConfigError
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.methods.base import Method
from fedmr_med.models.job_network import build_network
from fedmr_med.privacy import refusals
from fedmr_med.privacy.accountant import Noisy, PrivacyBudget, epsilon
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import BudgetError
from fedmr_med.runner import Federation
from fedmr_med.site.hospital import Hospital
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers import containers as messages
from tests.helpers.dp_audit import private_training
from tests.helpers.errors import raises
from tests.helpers.site_at_work import SiteAtWork
from tests.helpers.small import OPEN, initial_state, lenient, small_hospital, small_job, task_for

PRIVATE = {"clip": 1.0, "noise": 1.0}


def private_job(base: str = "fedmr", /, **changes: Any) -> JobConfig:
    method = {"options": {"variant": "anchored"}} if base == "fedmr" else {}
    return small_job(base, method=method, train={"private": PRIVATE}, loss={"class_weights": "none"}).override(changes)


def fold(size: int, groups: tuple[str, ...] | None = None) -> Fold:
    return Fold(np.zeros((size, 2, 2, 3), dtype=np.uint8), np.arange(size) % 2, groups)


def trainer(folder: Path, size: int = 1000, batch_size: int = 100, groups: tuple[str, ...] | None = None) -> Any:
    job = private_job(train={"batch_size": batch_size})
    return private_training(job, fold(size, groups), folder, OPEN)


def test_each_image_is_drawn_with_the_stated_probability(tmp_path: Path) -> None:
    private = trainer(tmp_path)
    assert private.rate == 0.1
    times = np.zeros(1000)
    for _ in range(1000):
        times[list(private.drawn())] += 1
    sizes_spread = np.sqrt(1000 * 1000 * 0.1 * 0.9)
    assert abs(times.sum() - 100_000) < 5 * sizes_spread
    assert times.std() == pytest.approx(np.sqrt(1000 * 0.1 * 0.9), rel=0.15)
    assert private.drawn() != private.drawn(), "two steps draw other images"


def test_a_batch_that_holds_all_images_is_all_of_them(tmp_path: Path) -> None:
    private = trainer(tmp_path, size=20, batch_size=64)
    assert private.rate == 1
    assert private.drawn() == tuple(range(20))


def test_all_images_of_a_patient_are_drawn_together(tmp_path: Path) -> None:
    groups = ("a", "b", "a", "", "", "a", "b")
    assert units(fold(7, groups)).tolist() == [0, 1, 0, 2, 3, 0, 1]
    private = trainer(tmp_path, size=7, batch_size=4, groups=groups)
    drawn = {private.drawn() for _ in range(200)}
    assert all((0 in rows) == (2 in rows) == (5 in rows) and (1 in rows) == (6 in rows) for rows in drawn)
    assert any(3 in rows and 4 not in rows for rows in drawn)


def step_on_nothing(folder: Path, **private: float) -> np.ndarray:
    """Return what one step without images and momentum changed, in units of the learning rate."""
    job = private_job("fedavg", train={"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "private": private})
    hospital = small_hospital("bcn", job, folder)
    task = task_for(initial_state(job), job)
    assert hospital.private_training is not None
    hospital.private_training.drawn = lambda: ()  # type: ignore[method-assign]
    reply = hospital.train(task)
    moved = [(reply.model[name] - array).ravel() for name, array in task.model.items()]
    expected = hospital.private_training.rate * reply.samples
    return np.concatenate(moved) * expected / job.train.lr / np.sqrt(3)


def test_a_step_that_draws_no_image_is_noise_of_the_stated_size(tmp_path: Path) -> None:
    found = step_on_nothing(tmp_path, clip=0.5, noise=3.0)
    assert found.std() == pytest.approx(1.5, rel=0.02)
    assert abs(found.mean()) < 5 * 1.5 / np.sqrt(found.size)


def test_two_runs_of_one_job_differ(tmp_path: Path) -> None:
    job = private_job("fedavg")
    task = task_for(initial_state(job), job)
    first, second = (small_hospital("bcn", job, tmp_path / name).train(task) for name in "ab")
    assert any(not np.array_equal(array, second.model[name]) for name, array in first.model.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["fedavg", "fedprox", "feddyn", "feddc", "fednova", "fedproc", "moon", "fedmr", "scaffold"]
)
def test_methods_train_privately_in_a_federation(tmp_path: Path, method: str) -> None:
    job = private_job(method, federation={"min_sites": 2}, head={"exchange": "none"})
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=center), policy=rich() if name == "bcn" else OPEN)
        for center, name in enumerate(("bcn", "rosendahl"))
    }
    state = Federation(job, sites, tmp_path).run()
    assert all(np.isfinite(array).all() for array in state.model.values())
    costs = [record.sites["bcn"].training_epsilon for record in state.history.rounds]
    assert None not in costs
    assert {record.sites["rosendahl"].training_epsilon for record in state.history.rounds} == {None}, "no budget"
    assert costs == sorted(costs)  # type: ignore[type-var]
    assert all(not record.sites["bcn"].terms for record in state.history.rounds), "losses have no noise"


@pytest.mark.slow
def test_penalties_are_added_beside_the_noise(tmp_path: Path) -> None:
    job = private_job("fedprox", method={"options": {"mu": 50.0}})
    job = job.override({"train": {"updates": 40, "lr": 0.01, "momentum": 0.0, "optimizer": "sgd"}})
    task = task_for(initial_state(job), job)

    def moved(config: JobConfig, folder: str) -> float:
        reply = small_hospital("bcn", config, tmp_path / folder).train(task_for(initial_state(job), config))
        return float(sum(np.sum((reply.model[name] - array) ** 2) for name, array in task.model.items()))

    assert moved(job, "held") < 0.5 * moved(job.override({"method": {"options": {"mu": 0.0}}}), "free")


def test_epsilon_is_that_of_the_steps_taken(tmp_path: Path) -> None:
    job = private_job("fedavg")
    hospital = small_hospital("bcn", job, tmp_path, rich())
    assert hospital.private_training is not None
    state = initial_state(job)
    for _ in range(2):
        reply = hospital.train(task_for(state, job))
    assert reply.report is not None
    assert reply.report.training_epsilon == pytest.approx(epsilon([Noisy(1.0, hospital.private_training.rate, 6)]))
    told = job.train.batch_size / reply.samples
    assert hospital.private_training.rate == pytest.approx(told), "the rate tells no more than the reply does"


def rich() -> SitePolicy:
    return OPEN.model_copy(update={"training_privacy": PrivacyBudget(epsilon=1000)})


def poor(epsilon: float = 3.0, **more: Any) -> SitePolicy:
    return lenient(share_metrics="per_class", training_privacy=PrivacyBudget(epsilon=epsilon, **more))


@pytest.mark.slow
def test_a_site_trains_until_its_budget_is_used_up(tmp_path: Path) -> None:
    job = private_job("fedavg", train={"private": {"clip": 1.0, "noise": 0.6}})
    site = small_hospital("bcn", job, tmp_path, poor(8.0))
    assert site.private_training is not None
    answered, task = 0, task_for(initial_state(job), job)
    with raises("budget.spent", "policy.training_privacy"):
        for _ in range(100):
            site.train(task)
            answered += 1
    assert answered
    assert site.private_training.ledger.total(1e-5) <= 8.0
    again = small_hospital("bcn", job.override({"name": "another"}), tmp_path, poor(8.0))
    with pytest.raises(BudgetError):
        again.train(task)
    assert again.validate(task).scores is not None, "it scores models as before"


def killed(job: JobConfig, folder: Path) -> None:
    torch.set_num_threads(1)
    hospital = small_hospital("bcn", job, folder, poor())
    hospital.train(task_for(initial_state(job), job), lambda: os.kill(os.getpid(), signal.SIGKILL) is None)


@pytest.mark.slow
def test_a_site_killed_while_it_trains_has_spent(tmp_path: Path) -> None:
    job = private_job("fedavg")
    process = multiprocessing.get_context("spawn").Process(target=killed, args=(job, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    site = small_hospital("bcn", job, tmp_path, poor())
    assert site.private_training is not None
    assert site.private_training.ledger.total(1e-5) > 0


def test_a_restored_ledger_stops_training(tmp_path: Path) -> None:
    job = private_job("fedavg")
    task = task_for(initial_state(job), job)
    config = SiteConfig(data=DemoSource(source="demo", center=0), policy=poor())
    Hospital("bcn", job, config, tmp_path / "state", witness=tmp_path / "witness.json").train(task)
    shutil.rmtree(tmp_path / "state")
    with raises("record.not-latest"):
        Hospital("bcn", job, config, tmp_path / "state", witness=tmp_path / "witness.json").train(task)


@pytest.mark.parametrize("noise", [None, 0.3])
def test_a_site_with_a_budget_refuses_jobs_with_too_little_noise(tmp_path: Path, noise: float | None) -> None:
    job = private_job("fedavg", train={"private": noise and {"clip": 1.0, "noise": noise}})
    with raises("floor.private"):
        small_hospital("bcn", job, tmp_path, poor())


SITE_FILE = (
    "data: {source: demo, center: 5}\n"
    "policy: {share_metrics: per_class, min_cell_count: 1, training: null, training_privacy: {epsilon: %s}}\n"
)


@pytest.mark.parametrize(
    ("epsilon", "job", "code"),
    [
        (50, private_job("fedavg"), ReturnCode.OK),
        (0.01, private_job("fedavg"), refusals.BUDGET),
        (50, small_job("fedavg"), refusals.floor_code("private")),
    ],
)
def test_the_server_hears_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epsilon: float, job: JobConfig, code: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    site = SiteAtWork(tmp_path, SITE_FILE % epsilon, job=job, site_filters=(PrototypeFilter(),))
    assert site.answer().get_return_code() == code
    assert refusals.in_words(refusals.BUDGET) == "its privacy budget for training is used up"


class LaxExecutor(Executor):
    """Trains without noise, whatever the site's policy demands."""

    def __init__(self, hospital: Hospital):
        super().__init__()
        self.hospital = hospital

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        return messages.encode_reply(self.hospital.train(messages.decode_task(shareable)))


def test_the_filter_lets_no_model_out_that_was_trained_without_the_demanded_noise(tmp_path: Path) -> None:
    job = small_job("fedavg")
    trained = SiteConfig(data=DemoSource(source="demo", center=5), policy=SitePolicy(training=None))
    executor = LaxExecutor(Hospital("vienna-dias", job, trained, tmp_path / "lax"))
    site = SiteAtWork(tmp_path, SITE_FILE % 50, executor, job=job, site_filters=(PrototypeFilter(),))
    assert site.answer().get_return_code() != ReturnCode.OK


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": {"name": "resnet18"}}, "model.options.norm: group"),
        ({"method": {"name": "fedmr", "options": {"variant": "paper"}}}, "intra-class loss"),
        ({"method": {"name": "fedmr", "options": {"lite": 4}}}, "lite"),
        ({"method": {"name": "fedmr", "options": {"replay": 1}}}, "variant: anchored"),
        ({"method": {"name": "fedavg", "options": {"reshaping": {"mu1": 0.1}}}}, "intra-class loss"),
        ({"method": {"name": "fedavg", "options": {"logits": {"kind": "adjusted"}}}}, "method.options.logits.kind"),
        ({"loss": {"class_weights": "local"}}, "loss.class_weights"),
        ({"train": {"compile": True}}, "train.compile"),
    ],
)
def test_what_mixes_images_or_tells_counts_is_refused_by_its_key(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        build_network(private_job().override(changes))


def test_group_norm_makes_a_network_fit() -> None:
    build_network(private_job(model={"name": "resnet18", "options": {"norm": "group"}}))


def test_a_method_that_does_not_say_so_is_refused() -> None:
    class Silent(Method):
        name = "silent"

    with raises("config.conflict", "method.name"):
        Silent(Method.options_type()).check_per_sample()


def test_private_training_does_without_own_prototypes(tmp_path: Path) -> None:
    closed = lenient(share_prototypes=False, share_metrics="per_class")
    for job, kept in ((small_job(), True), (private_job(), False)):
        small_hospital("bcn", job, tmp_path / str(kept), closed).train(task_for(initial_state(job), job))
        assert bool([*(tmp_path / str(kept)).rglob("own_prototypes")]) == kept


@pytest.mark.slow
def test_the_network_of_isic_trains_privately_beside_a_frozen_copy(tmp_path: Path) -> None:
    small = {"batch_size": 2, "updates": 1}
    job = private_job(
        "fedavg", method={"name": "moon"}, model={"name": "efficientnet_b0", "options": {"norm": "group"}}, train=small
    )
    hospital = small_hospital("bcn", job.override({"task": {"image_size": 32}}), tmp_path)
    assert hospital.private_training is not None
    hospital.private_training.drawn = lambda: (0, 1)  # type: ignore[method-assign]
    reply = hospital.train(task_for(initial_state(hospital.job), hospital.job))
    assert all(np.isfinite(array).all() for array in reply.model.values())
