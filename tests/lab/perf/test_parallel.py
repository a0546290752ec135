"""Clients side by side: what is counted, and that only equal models are compared."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedmr_med.lab.perf.parallel import check_equal, parallel_figures, spent
from fedmr_med.server.state import initial_state
from tests.helpers.errors import raises
from tests.helpers.small import small_job


def test_the_critical_path_is_the_server_and_its_busiest_worker() -> None:
    assert spent((10.0, 1.0, {7: 2.0}), (16.0, 1.5, {7: 4.0, 8: 3.5})) == (6.0, 4.0)
    assert spent((0.0, 0.0, {}), (1.0, 3.0, {})) == (1.0, 3.0), "one process alone"


def test_runs_that_made_different_models_are_not_compared() -> None:
    state = initial_state(small_job())
    check_equal(state, initial_state(small_job()))
    name = next(iter(state.model))
    with raises("perf.different-models"):
        check_equal(state, replace(state, model=state.model | {name: state.model[name] + 1}))


@pytest.mark.nightly
@pytest.mark.slow
def test_two_workers_share_the_cpu_time_of_one(tmp_path: Path) -> None:
    made = parallel_figures(tmp_path, clients=4, updates=60, rounds=1, repetitions=1)
    figures = {figure.subject: figure for figure in made}
    assert set(figures) == {"wall", "cpu"}
    assert 1.3 < figures["cpu"].value < 2.6, "two of four clients each; by CPU time, so neighbours hardly matter"
