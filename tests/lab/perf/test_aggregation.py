"""The server's part of a round is measured as the server does it."""

import sys

import pytest

from fedmr_med.config import JobConfig
from fedmr_med.exchange import train
from fedmr_med.lab.perf import aggregation
from fedmr_med.lab.perf.aggregation import aggregation_figures, memory_figures
from fedmr_med.server.robust import Comparison
from tests.helpers.small import initial_state, small_job

CONTRIBUTIONS = 60


@pytest.fixture(scope="module")
def job() -> JobConfig:
    """A job whose model has 2 MB."""
    return small_job(model={"options": {"feature_size": 640}})


def test_the_rules_of_the_job_are_part_of_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    class Counting(Comparison):
        def outliers(self, replies):  # type: ignore[no-untyped-def]
            assert self._bound is None or not super().outliers(replies)
            compared.append(0 if self._bound is None else len(replies))
            return {}

    monkeypatch.setattr(train, "Comparison", Counting)
    job = small_job()
    figures = {figure.name: figure for figure in aggregation_figures(job, initial_state(job), 5, repetitions=2)}
    assert compared.count(5) == compared.count(0) == 3, "with and without, in a turn to warm up and two that count"
    assert set(figures) == {"aggregate_ms", "aggregate_vs_numpy", "aggregate_vs_flare", "aggregate_vs_plain"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the table of a process in /proc")
def test_memory_has_a_bound_that_the_number_of_replies_does_not_move(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(array.nbytes for array in initial_state(job).model.values())
    monkeypatch.setattr(aggregation, "MEMORY", 5 * size)
    bounded, unbounded = (figure.value for figure in memory_figures(job, CONTRIBUTIONS))
    assert unbounded > CONTRIBUTIONS
    assert bounded < unbounded / 2
