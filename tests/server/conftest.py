"""A job on a network with BatchNorm, and the state it starts from."""

import pytest

from fedmr_med.config import JobConfig
from fedmr_med.server.state import GlobalState
from tests.helpers.small import initial_state, small_job


@pytest.fixture(scope="module")
def job() -> JobConfig:
    return small_job(model={"name": "narrow_resnet", "options": {"width": 8, "blocks": 1}})


@pytest.fixture(scope="module")
def state(job: JobConfig) -> GlobalState:
    return initial_state(job)
