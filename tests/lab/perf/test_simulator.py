"""FLARE's simulator against the runner: both run, to the same model. No figure is checked."""

from pathlib import Path

import pytest

from fedmr_med.jobs.catalog import isic_job
from fedmr_med.lab.perf.federation import secure_figure
from fedmr_med.lab.perf.simulator import simulator_figures
from tests.helpers.errors import raises

SMALL = (
    isic_job("fedmr").for_demo().override({"model": {"name": "small_cnn", "options": {}}, "task": {"image_size": 16}})
)


@pytest.mark.nightly
@pytest.mark.slow
def test_both_run_the_same_job_to_the_same_model(tmp_path: Path) -> None:
    figures = simulator_figures(tmp_path, SMALL, rounds=1, repetitions=1)
    names = [(figure.name, figure.subject) for figure in figures]
    assert names == [("simulator_overhead", "wall"), ("simulator_overhead", "cpu")]
    assert all(figure.value > 0 for figure in figures)


@pytest.mark.slow
def test_the_share_of_secure_sums_is_between_nothing_and_the_round(tmp_path: Path) -> None:
    (figure,) = secure_figure(tmp_path, SMALL, rounds=1)
    assert 0 < figure.value < 1


@pytest.mark.nightly
@pytest.mark.slow
def test_a_simulator_that_fails_is_no_figure(tmp_path: Path) -> None:
    with raises("run.simulator"):
        simulator_figures(tmp_path, SMALL.override({"federation": {"min_sites": 7}}), rounds=1, repetitions=1)
