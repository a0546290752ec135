"""What the server sends is looked at before it is used, on the real executor."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.shareable import Shareable

from fedmr_med.privacy import refusals
from fedmr_med.prototypes import Prototypes
from fedmr_med.server.state import GlobalState
from tests.helpers import containers as messages
from tests.helpers.site_at_work import SHARES_ALL, SiteAtWork
from tests.helpers.small import initial_state, small_job, task_for

Change = Callable[[GlobalState], GlobalState]


def with_array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda state: replace(state, model=state.model | {name: change(state.model[name].copy())})


def with_value(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def changed(array: np.ndarray) -> np.ndarray:
        array.flat[0] = value
        return array

    return changed


def with_means(value: float) -> Change:
    def changed(state: GlobalState) -> GlobalState:
        return replace(state, prototypes=replace(state.prototypes, means=state.prototypes.means + value))

    return changed


def with_method(**arrays: np.ndarray) -> Change:
    return lambda state: replace(state, method=state.method | arrays)


def other_prototypes(state: GlobalState) -> GlobalState:
    return replace(state, prototypes=Prototypes.none(8, 3))


def untyped_prototypes(state: GlobalState) -> GlobalState:
    return replace(state, prototypes=replace(state.prototypes, available=torch.zeros(8)))


CHANGES: dict[str, Change] = {
    "NaN": with_array("classifier.weight", with_value(float("nan"))),
    "infinite": with_array("classifier.bias", with_value(float("inf"))),
    "transposed": with_array("classifier.weight", np.transpose),
    "other type": with_array("classifier.weight", lambda array: array.astype(np.float64)),
    "NaN prototype": with_means(float("nan")),
    "misshapen prototypes": other_prototypes,
    "availability without yes and no": untyped_prototypes,
    "round too late": lambda state: replace(state, round=2),
    "NaN method state": with_method(unheard_of=np.array(float("nan"))),
}


ASKED = [("train", name) for name in CHANGES] + [("validate", name) for name in ("NaN", "transposed", "NaN prototype")]


@pytest.mark.parametrize(("task", "name"), ASKED)
def test_a_task_that_is_misshapen_or_not_finite_is_refused(tmp_path: Path, task: str, name: str) -> None:
    site = SiteAtWork(tmp_path, SHARES_ALL)
    data = messages.encode_task(task_for(CHANGES[name](site.state()), site.job))
    assert site.answer(task, data).get_return_code() == refusals.TASK


def test_a_negative_variance_is_refused(tmp_path: Path) -> None:
    job = small_job(model={"name": "narrow_resnet"})
    site = SiteAtWork(tmp_path, SHARES_ALL, job=job)
    name = next(name for name in initial_state(job).model if name.endswith("running_var"))
    state = with_array(name, with_value(-1.0))(initial_state(job))
    assert site.answer(data=messages.encode_task(task_for(state, job))).get_return_code() == refusals.TASK


def test_a_method_state_of_another_form_is_refused(tmp_path: Path) -> None:
    job = small_job("feddc")
    site = SiteAtWork(tmp_path, SHARES_ALL, job=job)
    lacking = replace(task_for(initial_state(job), job), method={})
    assert site.answer(data=messages.encode_task(lacking)).get_return_code() == refusals.TASK


def spoiled(task: Shareable, **meta: Any) -> Shareable:
    task["DXO"]["meta"] |= meta
    return task


@pytest.mark.parametrize("accepted", ["all", 7, {"vienna-dias": "1"}, None])
def test_accepted_rounds_that_are_none_are_refused(tmp_path: Path, accepted: object) -> None:
    site = SiteAtWork(tmp_path, SHARES_ALL)
    assert site.answer(data=spoiled(site.task(), accepted=accepted)).get_return_code() == refusals.TASK
