"""Plausibility: statistics that no data has, and sites that grow from round to round."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.metrics import Scores, scores
from fedmr_med.server.aggregation import PrototypeAggregator
from fedmr_med.server.checks import Registered
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.scores import SCORES
from fedmr_med.wire.messages import SiteReply
from tests.helpers.errors import raises
from tests.helpers.replies import reply_check
from tests.helpers.small import small_hospital, small_job, task_for


@pytest.fixture(scope="module")
def reply(job: JobConfig, state: GlobalState, tmp_path_factory: pytest.TempPathFactory) -> SiteReply:
    folder: Path = tmp_path_factory.mktemp("sites")
    return small_hospital("bcn", job, folder).train(task_for(state, job))


@pytest.fixture(scope="module")
def later(job: JobConfig, state: GlobalState, reply: SiteReply) -> GlobalState:
    aggregation = PrototypeAggregator(job, state)
    reply_check(job, state).check(reply)
    aggregation.add(reply)
    return aggregation.finish(1, {})


@pytest.mark.parametrize("kind", ["running_var", "num_batches_tracked"])
def test_negative_statistics_are_refused(job: JobConfig, state: GlobalState, reply: SiteReply, kind: str) -> None:
    name = next(name for name in state.model if name.endswith(kind))
    bad = replace(reply, model=reply.model | {name: np.full_like(reply.model[name], -1000)})
    with raises("wire.range", name):
        reply_check(job, state).check(bad)


def test_a_model_just_over_the_largest_norm_is_refused(reply: SiteReply, state: GlobalState) -> None:
    largest = 1.2 * max(float(np.linalg.norm(array.astype(np.float64))) for array in reply.model.values())
    job = small_job(
        model={"name": "narrow_resnet", "options": {"width": 8, "blocks": 1}}, federation={"max_norm": largest}
    )
    check = reply_check(job, state)
    reply = replace(reply, settings=job.digest())
    check.check(reply)
    name = next(name for name in state.parameters if name.endswith("weight"))
    flat = np.full_like(reply.model[name], 1.2 * largest / np.sqrt(reply.model[name].size))
    others = {other: np.zeros_like(array) for other, array in reply.model.items()}
    for model in (reply.model, others):
        with raises("wire.norm", "federation.max_norm"):
            check.check(replace(reply, model=model | {name: flat}))


def test_a_site_cannot_grow_in_the_course_of_a_chain(job: JobConfig, later: GlobalState, reply: SiteReply) -> None:
    check = reply_check(job, later)
    again = replace(reply, round=1)
    check.check(again)
    check.check(replace(again, samples=2 * reply.samples))
    with raises("wire.changed-count", "training"):
        check.check(replace(again, samples=2 * reply.samples + 1))
    perfect = Scores(1.0, 1.0, 10**5)
    with raises("wire.changed-count", "test"):
        check.check(again.with_statistic(SCORES, perfect))
    with raises("wire.changed-count", "test"):
        Registered.of(later.history, small_job()).check_scores("bcn", perfect)
    Registered.of(later.history, small_job()).check_scores("somebody new", perfect)
    with raises("wire.range", "federation.max_samples"):
        Registered.of(later.history, small_job(federation={"max_samples": 99})).check_scores("somebody new", perfect)


def test_a_global_state_that_is_not_finite_never_replaces_one_that_is(
    job: JobConfig, state: GlobalState, reply: SiteReply
) -> None:
    aggregation = PrototypeAggregator(job, state)
    name = next(iter(state.parameters))
    aggregation.add(replace(reply, model=reply.model | {name: np.full_like(reply.model[name], np.inf)}))
    with raises("round.not-finite"):
        aggregation.finish(1, {})


def test_scores_of_images_that_the_job_does_not_have_are_refused() -> None:
    answer = scores(np.eye(8, dtype=np.int64))
    both = replace(answer, validation=answer)
    with raises("wire.unasked", "scores"):
        Registered.of(History(), small_job()).check_scores("bcn", both)
    job = small_job(train={"validation": 0.2}, federation={"max_samples": 8})
    Registered.of(History(), job).check_scores("bcn", both)
    with raises("wire.range", "federation.max_samples"):
        Registered.of(History(), job).check_scores(
            "bcn", replace(answer, validation=scores(2 * np.eye(8, dtype=np.int64)))
        )
