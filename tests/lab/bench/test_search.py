"""Choosing coefficients on held-out training data."""

from pathlib import Path

import pytest

from fedmr_med import methods
from fedmr_med.evaluation.results import RoundResult, RunResult
from fedmr_med.jobs.presets import PRESETS
from fedmr_med.lab.bench import search
from fedmr_med.lab.bench.compare import tuned
from fedmr_med.lab.bench.request import BenchRequest
from fedmr_med.lab.comparison.launchers import Resources
from tests.helpers.archives import write_mini

REQUEST = BenchRequest(dataset="fmnist", split="P5C2", methods=("fedprox", "fedavg"), model="small_cnn", epochs=1)


def result(accuracy: float | None, error: str | None = None) -> RunResult:
    scored = None if accuracy is None else 1 - accuracy
    rounds = (RoundResult(round=1, accuracy=scored, balanced_accuracy=accuracy, seconds=1, bytes_up=1, bytes_down=1),)
    return RunResult(dataset="fmnist", split="P5C2", method="fedprox", seed=0, rounds=rounds, error=error)


@pytest.mark.parametrize("method", [*methods.available(), *(name for name, preset in PRESETS.items() if preset.trains)])
def test_everyone_gets_six_tries_that_a_job_accepts(method: str) -> None:
    tried = search.candidates(REQUEST.model_copy(update={"methods": (method,), "tune": 3}))
    assert len(tried) == 6
    assert len({run.name for option in tried for run in option.runs()}) == 6


def test_the_search_is_made_on_held_out_training_data_with_its_own_seed() -> None:
    tried = search.candidates(REQUEST.model_copy(update={"tune": 7, "tune_rounds": 2}))
    runs = [run for option in tried for run in option.runs()]
    assert {run.selection.held_out for run in runs} == {search.HELD_OUT}
    assert {run.job.seed for run in runs} == {7}
    assert {run.job.federation.rounds for run in runs} == {2}


def test_the_best_value_is_chosen_and_the_first_of_equal_ones() -> None:
    tried = search.candidates(REQUEST.model_copy(update={"methods": ("fedprox",), "tune": 0}))
    chosen = search.best(tried, [result(0.5), result(0.7), result(0.7), *[result(None)] * 3])
    assert chosen == {"fedprox": tried[1].chosen["fedprox"]}


def test_a_failed_run_is_never_chosen() -> None:
    tried = search.candidates(REQUEST.model_copy(update={"methods": ("fedprox",), "tune": 0}))
    assert search.best(tried, [result(0.9, "went to infinity"), *[result(None)] * 5]) == {}


@pytest.mark.slow
def test_a_comparison_takes_what_the_search_chose_and_names_it(tmp_path: Path) -> None:
    write_mini("fmnist", tmp_path / "data", per_class=20, test_per_class=4)
    request = REQUEST.model_copy(
        update={"methods": ("fedprox",), "data": tmp_path / "data", "rounds": 1, "seeds": (1, 2), "tune": 0}
    )
    ready = tuned(request, tmp_path / "out", Resources(workers=0))
    (settings,) = ready.chosen.values()
    assert (tmp_path / "out" / "search" / "results.json").is_file()
    for run in ready.runs():
        assert run.job.method.options["mu"] == settings["fedprox.mu"]
        assert run.job.train.lr == settings["train.lr"]
        assert run.label == f"fedprox (train.lr {settings['train.lr']}, mu {settings['fedprox.mu']})"
        assert run.selection.held_out == 0
