"""Training floors on the real executor: a job that does not keep to them is refused by name, before it trains."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable

from fedmr_med.config import load_job
from fedmr_med.flare.executor import FedMRExecutor
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.privacy import refusals
from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import validated
from fedmr_med.server.state import GlobalState
from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook
from fedmr_med.site.floors import SiteFloors, head_spread
from fedmr_med.sites import load_site
from tests.helpers import REPOSITORY
from tests.helpers import containers as messages
from tests.helpers.errors import raises
from tests.helpers.site_at_work import SiteAtWork
from tests.helpers.small import initial_state, small_job, task_for

DEFAULTS = "data: {source: demo, center: 5}\npolicy: {share_prototypes: false}\n"
KEEPS: dict[str, Any] = {"train": {"updates": 10}, "federation": {"min_sites": 3}}
HISTOGRAM = {"optimizer": "sgd", "updates": 1, "batch_size": 4096, "lr": 1.0, "momentum": 0.0}


def answer(folder: Path, floors: str = "{}", **changes: Any) -> str:
    """Return the return code of a site with floors to a job that keeps to the defaults but for the changes."""
    job = small_job(**KEEPS).override(changes)
    site_file = DEFAULTS.replace("share_prototypes: false", f"training: {floors}")
    site = SiteAtWork(folder, site_file, job=job, site_filters=(PrototypeFilter(),))
    return str(site.answer().get_return_code())


def test_a_job_that_keeps_to_the_floors_is_trained_for(tmp_path: Path) -> None:
    assert answer(tmp_path) == ReturnCode.OK


@pytest.mark.parametrize(
    ("changes", "floor"),
    [
        ({"train": {"batch_size": 4}}, "batch_size"),
        ({"train": {"batch_size": 513}}, "batch_size"),
        ({"train": {"batch_size": 500}}, "batch_size"),
        ({"train": {"updates": 9}}, "updates"),
        ({"train": {"lr": 0.0}}, "lr"),
        ({"train": {"lr": 1.0}}, "lr"),
        ({"federation": {"min_sites": 2}}, "sites"),
        ({"head": {"held_out": 0.16}}, "held_out"),
        ({"train": {"validation": 0.21}}, "held_out"),
        ({"train": HISTOGRAM}, "batch_size"),
    ],
)
def test_a_job_below_a_floor_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], floor: str) -> None:
    assert answer(tmp_path, **changes) == refusals.floor_code(floor)
    assert not (tmp_path / "client_state").exists(), "nothing was trained"


@pytest.mark.parametrize(("asked", "given"), [("all", "statistics"), ("all", "none"), ("statistics", "none")])
def test_a_site_can_demand_secure_sums(tmp_path: Path, asked: str, given: str) -> None:
    sums = {"federation": {"min_sites": 3, "secure": given}}
    assert answer(tmp_path / "a", f"{{secure: {asked}}}", **sums) == refusals.floor_code("secure")
    sums["federation"]["secure"] = asked
    assert answer(tmp_path / "b", f"{{secure: {asked}}}", **sums) == ReturnCode.OK


def test_methods_and_models_can_be_named(tmp_path: Path) -> None:
    assert answer(tmp_path / "a", "{methods: [fedavg]}") == refusals.floor_code("method")
    assert answer(tmp_path / "b", "{models: [resnet18]}") == refusals.floor_code("model")
    assert answer(tmp_path / "c", "{methods: [fedmr], models: [small_cnn]}") == ReturnCode.OK


def test_without_floors_everything_is_trained_for(tmp_path: Path) -> None:
    assert answer(tmp_path, "null", train=HISTOGRAM, federation={"min_sites": 1}) == ReturnCode.OK


def test_the_word_for_every_floor_is_known_to_the_coordinator() -> None:
    for floor in refusals.FLOORS:
        assert refusals.floor_code(floor) in refusals.WORDS
    assert "min_sites" in refusals.in_words(refusals.floor_code("sites"))


class AtWork:
    """A site with the default floors that is asked again and again, each time in a new process."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.job = small_job(**KEEPS)

    def asked(self, state: GlobalState, task: str = "train") -> str:
        site = SiteAtWork(self.folder, DEFAULTS, FedMRExecutor(), job=self.job)
        return str(site.answer(task, self.encoded(state)).get_return_code())

    def encoded(self, state: GlobalState) -> Shareable:
        return messages.encode_task(task_for(state, self.job))


@pytest.mark.parametrize("task", ["train", "validate"])
@pytest.mark.parametrize("weight", [0.0, 1.0, 1e-20])
def test_a_classifier_of_equal_rows_is_refused(tmp_path: Path, task: str, weight: float) -> None:
    site = AtWork(tmp_path)
    state = initial_state(site.job)
    head = np.full_like(state.model["classifier.weight"], weight)
    head[0, 0] *= 1.001
    crafted = replace(state, model=state.model | {"classifier.weight": head})
    assert site.asked(crafted, task) == refusals.floor_code("head")
    assert site.asked(state, task) == ReturnCode.OK


def test_a_fresh_classifier_has_spread_one() -> None:
    for model in ("small_cnn", "narrow_resnet"):
        weight = initial_state(small_job(model={"name": model})).model["classifier.weight"]
        assert 0.8 < head_spread(weight) < 1.2


def test_arrays_beyond_the_norm_are_refused(tmp_path: Path) -> None:
    site = AtWork(tmp_path)
    state = initial_state(site.job)
    large = replace(state, model=state.model | {"classifier.bias": np.full(8, 1e6, dtype=np.float32)})
    assert site.asked(large) == refusals.floor_code("norm")


def test_an_answered_round_is_not_answered_again_for_another_model(tmp_path: Path) -> None:
    site = AtWork(tmp_path)
    state = initial_state(site.job)
    other = replace(state, model=state.model | {"classifier.bias": state.model["classifier.bias"] + 1e-3})
    assert site.asked(state) == ReturnCode.OK
    assert site.asked(state) == ReturnCode.OK, "a server that was restarted repeats its round"
    assert site.asked(other) == refusals.floor_code("repeat")
    assert site.asked(replace(other, round=1)) == ReturnCode.OK
    assert site.asked(state) == ReturnCode.OK


@pytest.mark.parametrize("part", ["averaged", "prototypes"])
def test_a_round_is_trained_and_scored_with_one_set_of_arrays(tmp_path: Path, part: str) -> None:
    """Ten models to score beside one to train gave ten answers in a round."""
    site = AtWork(tmp_path)
    state = replace(initial_state(site.job), round=1)
    averaged = {name: state.model[name] + np.float32(1e-3) for name in state.parameters}
    means = state.prototypes.means + 1e-3
    other = {"averaged": averaged, "prototypes": replace(state.prototypes, means=means)}
    assert site.asked(state) == ReturnCode.OK
    assert site.asked(replace(state, **{part: other[part]})) == refusals.floor_code("repeat")


def with_other(state: GlobalState, name: str, number: int = 1) -> GlobalState:
    """Return a state of which one array is a little different."""
    return replace(state, model=state.model | {name: state.model[name] + np.float32(number * 1e-3)})


@pytest.mark.parametrize("kind", ["validate", "head"])
def test_a_round_is_scored_with_one_network(tmp_path: Path, kind: str) -> None:
    site = AtWork(tmp_path)
    state = replace(initial_state(site.job), round=1)
    other = with_other(state, "conv1.weight")
    assert site.asked(state, kind) == ReturnCode.OK
    assert site.asked(state, kind) == ReturnCode.OK, "a server that was restarted repeats its round"
    for again in ("validate", "head"):
        assert site.asked(other, again) == refusals.floor_code("repeat")
    assert site.asked(replace(other, round=2), kind) == ReturnCode.OK


def test_a_round_is_scored_with_its_classifier_and_its_head_and_no_third(tmp_path: Path) -> None:
    site = AtWork(tmp_path)
    state = replace(initial_state(site.job), round=1)
    codes = [site.asked(with_other(state, "classifier.bias", number), "validate") for number in (1, 2, 3, 2, 1)]
    repeat = refusals.floor_code("repeat")
    assert codes == [ReturnCode.OK, ReturnCode.OK, repeat, ReturnCode.OK, ReturnCode.OK]


def test_jobs_that_were_answered_in_a_day_are_counted(tmp_path: Path) -> None:
    book = ApprovalBook(tmp_path / APPROVALS_FILE)
    for number in range(2):
        book.answered(small_job(**KEEPS), job_id=f"earlier-{number}", chain=f"chain-{number}")
    assert answer(tmp_path, "{max_jobs_per_day: 2}") == refusals.floor_code("jobs_per_day")
    assert answer(tmp_path, "{max_jobs_per_day: 3}") == ReturnCode.OK
    book.answered(small_job(**KEEPS), job_id="later", chain="later")
    assert answer(tmp_path, "{max_jobs_per_day: 3}") == ReturnCode.OK, "a job that was answered goes on"


def test_jobs_that_were_refused_use_nothing_up(tmp_path: Path) -> None:
    """Otherwise a lead could keep all others out with jobs that nobody would train for."""
    book = ApprovalBook(tmp_path / APPROVALS_FILE)
    for number in range(5):
        book.asked(small_job(**KEEPS), job_id=f"refused-{number}", chain=f"chain-{number}")
    assert answer(tmp_path, "{max_jobs_per_day: 1}", train={"lr": 1.0}) == refusals.floor_code("lr")
    assert answer(tmp_path, "{max_jobs_per_day: 1}") == ReturnCode.OK
    status = book.status(SitePolicy(), small_job(), job_id="another", chain="another")
    assert status.answered_before == 1, "the reply that left counts its job"


def test_the_shipped_jobs_keep_to_the_floors_of_the_shipped_sites(tmp_path: Path) -> None:
    for path in sorted((REPOSITORY / "jobs").glob("*/app/config/fedmr.yaml")):
        job = load_job(path)
        for site in sorted(path.parent.glob("sites/*/site.yaml")):
            floors = SiteFloors(load_site(site).policy, tmp_path)
            floors.check_job(job)
            floors.check_job(job.for_demo())
            floors.check_amount(job, 351)  # the smallest centre
            floors.check_amount(job.for_demo(), 59)


def test_an_empty_range_is_not_valid() -> None:
    with raises("config.conflict", "min_lr"):
        validated(TrainingFloors, {"min_lr": 1.0}, "the test")
