"""Comparisons: many runs, resumption, results, table and report."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from fedmr_med.errors import ConfigError, DataError
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.evaluation.seeds import Spread, rows
from fedmr_med.lab.bench.compare import REQUEST, compare
from fedmr_med.lab.bench.outputs import write_outputs
from fedmr_med.lab.bench.request import BenchRequest
from fedmr_med.lab.bench.runs import Run
from fedmr_med.lab.comparison.launchers import Resources
from fedmr_med.report.pages.comparison import cells
from tests.helpers import REPOSITORY
from tests.helpers.benchmarks import request_for, without_times
from tests.helpers.errors import raises
from tests.helpers.results import run_of

HERE = Resources(workers=0)
ROUND_KEYS = {"round", "accuracy", "balanced_accuracy", "seconds", "bytes_up", "bytes_down"}


@pytest.mark.slow
def test_a_comparison_writes_results_curves_and_report(fmnist: Path, tmp_path: Path, capsys: Any) -> None:
    found = compare(request_for(fmnist, seeds=(0, 1)), tmp_path, HERE)
    assert read_result(tmp_path / "results.json", RunResults) == found
    results = found.runs
    assert [(run.method, run.seed) for run in results] == [(m, s) for m in ("fedavg", "fedmr") for s in (0, 1)]
    for run in results:
        assert (run.dataset, run.split) == ("fmnist", "P5C2")
        assert [record.round for record in run.rounds] == [1, 2, 3]
        assert all(record.keys() >= ROUND_KEYS and None not in record.values() for record in run.model_dump()["rounds"])
        accuracies = [record.accuracy or 0.0 for record in run.rounds]
        assert run.best_accuracy == max(accuracies)
        assert run.last_accuracy == accuracies[-1]
        assert run.last5_accuracy == pytest.approx(sum(accuracies) / 3)
    assert {tuple(record.terms) for record in results[-1].rounds} == {("classification", "anchor", "replay")}
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page
    text = re.sub(r"<[^>]+>", "", page)
    assert all(cell in text for row in rows(results) for cell in cells(row))
    assert page.count('class="band') == 2, "two seeds of two methods"
    assert "src=" not in page, "the page needs no other file"
    printed = capsys.readouterr()
    assert not printed.out, "the command prints the tables"
    assert "left in all" in printed.err


@pytest.mark.nightly
@pytest.mark.slow
def test_several_workers_give_the_same_results(fmnist: Path, tmp_path: Path) -> None:
    here = compare(request_for(fmnist), tmp_path / "here", HERE).runs
    there = compare(request_for(fmnist), tmp_path / "there", Resources(workers=2, parallel_clients=2)).runs
    assert without_times(here) == without_times(there)


@pytest.mark.slow
def test_what_is_done_is_not_done_again(fmnist: Path, tmp_path: Path) -> None:
    first = compare(request_for(fmnist, ("fedavg",)), tmp_path, HERE).runs
    both = compare(request_for(fmnist), tmp_path, HERE).runs
    assert both[0] == first[0], "seconds and all: it was not run again"
    assert len(both) == 2


def test_a_folder_holds_one_comparison(fmnist: Path, tmp_path: Path) -> None:
    one = request_for(fmnist, ("fedavg",))
    compare(one, tmp_path, HERE)
    with raises("run.other-settings", "--out"):
        compare(request_for(fmnist, ("fedavg",), fraction=0.5), tmp_path, HERE)
    for damaged in ("[", "[1]", "1"):
        (tmp_path / REQUEST).write_text(damaged)
        with raises("file.unreadable", "--out"):
            compare(one, tmp_path, HERE)


def test_a_run_that_fails_does_not_stop_the_others(fmnist: Path, tmp_path: Path) -> None:
    settings = {"fedprox.mu": 1e30}
    failed, good = compare(request_for(fmnist, ("fedprox", "fedavg"), settings=settings), tmp_path, HERE).runs
    assert "max_norm" in (failed.error or "")
    assert (good.best_accuracy or 0) > 0
    assert "usable replies" in (tmp_path / "report.html").read_text()


def test_options_reach_the_methods_that_have_them(fmnist: Path) -> None:
    runs = request_for(fmnist, ("fedavg", "fedprox", "fedmr"), settings={"mu1": 0.5, "fedprox.mu": 3}).runs()
    assert [run.job.method.options for run in runs] == [{}, {"mu": 3}, {"variant": "replayed", "mu1": 0.5}]


def test_clients_are_drawn_and_share_as_asked(fmnist: Path, tmp_path: Path) -> None:
    request = request_for(fmnist, ("fedmr",), split="P20C2", clients_per_round=4, share=0.5)
    (run,) = request.runs()
    assert run.job.federation.sites_per_round == run.job.federation.min_sites == 4
    assert sum(site.policy.share_prototypes is True for site in run.sites.values()) == 10
    (result,) = compare(request, tmp_path, HERE).runs
    model = 4 * 5 * 5 + 4 + 8 * 4 * 25 + 8 + 16 * 200 + 16 + 10 * 16 + 10
    assert result.rounds[0].bytes_down >= 4 * 4 * model
    assert result.rounds[0].bytes_down < 4.5 * 4 * model


@pytest.mark.parametrize(
    ("changes", "error", "fault"),
    [
        ({"methods": ("fedsgd",)}, ConfigError, ("config.unknown-name", "method.name")),
        ({"dataset": "mnist"}, ConfigError, ("config.unknown-name", "--dataset")),
        ({"model": "lenet", "settings": {"model.options": {}}}, ConfigError, ("config.unknown-name", "model.name")),
        ({"split": "P5C11"}, ConfigError, ("split.classes",)),
        ({"split": "P4C2"}, ConfigError, ("split.too-few-slots",)),
        ({"split": "dir-1"}, ConfigError, ("split.beta",)),
        ({"split": "iid", "clients": 500}, ConfigError, ("split.too-many-clients",)),
        ({"clients_per_round": 6}, ConfigError, ("config.value", "--clients-per-round")),
        ({"without_leaked": True}, ConfigError, ("config.conflict", "--without-leaked")),
        ({"cross_validate": 5}, ConfigError, ("config.conflict", "--cross-validate")),
        ({"tune": 0, "held_out": 0.2}, ConfigError, ("config.conflict", "--tune")),
        ({"tune_rounds": 2}, ConfigError, ("config.conflict", "--tune-rounds")),
        ({"settings": {"alpha": 1}}, ConfigError, ("config.unknown-key", "--set alpha")),
        ({"settings": {"seed": 1}}, ConfigError, ("config.conflict", "--set seed")),
        ({"settings": {"train.speed": 1}}, ConfigError, ("config.unknown-key", "train.speed")),
        ({"data": Path("absent")}, DataError, ("data.missing",)),
        ({"fraction": 0.05}, DataError, ("data.too-few",)),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(
    changes: dict[str, Any], error: type[Exception], fault: tuple[str, ...], fmnist: Path, tmp_path: Path
) -> None:
    arguments = {"split": "P10C1"} if "fraction" in changes else {}
    with raises(*fault):
        compare(request_for(**({"data": fmnist} | arguments | changes)), tmp_path, HERE)
    assert not any(tmp_path.iterdir())


def test_settings_are_chosen_on_held_out_training_data(fmnist: Path, tmp_path: Path) -> None:
    request = request_for(fmnist, ("fedavg",), held_out=0.2)
    (run,), (on_test,) = request.runs(), request_for(fmnist, ("fedavg",)).runs()
    assert run.name != on_test.name
    (result,) = compare(request, tmp_path, HERE).runs
    assert result.held_out == 0.2
    page = (tmp_path / "report.html").read_text()
    assert "<h1>held-out training data: fmnist" in page
    assert "20 % of each client&#39;s training data, held out, and not on the test set" in page
    assert request_for(fmnist).title == "fmnist: fedavg, fedmr"
    state = tmp_path / "runs" / run.name / "checkpoint.pt"
    history = History.model_validate_json(torch.load(state, weights_only=True)["history"])
    assert {e.pooled.samples for e in history.evaluations if e.pooled} == {40}
    assert {part.samples for record in history.rounds for part in record.sites.values()} == {32}


def test_the_demo_of_isic_can_be_compared_too(tmp_path: Path) -> None:
    settings = {"task.image_size": 24, "train.updates": 1, "train.batch_size": 8}
    content = {"dataset": "isic2019", "data": "demo", "methods": ("fedavg",), "model": "small_cnn", "rounds": 2}
    request = BenchRequest.model_validate(content | {"settings": settings, "absent": ("bcn",)})
    (result,) = compare(request, tmp_path, HERE).runs
    assert result.demo
    assert [record.accuracy is not None for record in result.rounds] == [True, True]
    assert "No figure here is a medical result" in (tmp_path / "report.html").read_text()
    with raises("config.unknown-name", "--absent"):
        request.model_copy(update={"absent": ("mayo",)}).runs()


def test_the_folder_of_a_demo_run_does_not_depend_on_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set()
    for folder in (tmp_path, REPOSITORY):
        monkeypatch.chdir(folder)
        names.add(BenchRequest(dataset="isic2019", data=Path("demo"), methods=("fedavg",)).runs()[0].name)
    assert len(names) == 1


def test_a_run_without_rounds_shows_its_head_and_its_exchange(tmp_path: Path) -> None:
    absent = ("vidir-molemax", "vidir-modern", "rosendahl", "vienna-dias")  # bcn has images of all classes
    settings = {"task.image_size": 24, "model.options": {"width": 4, "feature_size": 16}}
    request = BenchRequest(
        dataset="isic2019", data=Path("demo"), methods=("oneshot",), absent=absent, settings=settings
    )
    (result,) = compare(request, tmp_path, HERE).runs
    assert (result.error, result.rounds, result.last_accuracy) == (None, (), None)
    (row,) = rows([result])
    assert (row.over_seeds("best_accuracy"), row.over_seeds("best_balanced_accuracy")) == (None, None)
    for figure in ("head_accuracy", "head_balanced_accuracy"):
        assert row.over_seeds(figure) == Spread(getattr(result, figure))
    assert row.megabytes == pytest.approx((result.head_bytes_up + result.head_bytes_down) / 1e6)
    assert row.seconds > 0
    assert "with head" in (tmp_path / "report.html").read_text()


def test_one_exchange_on_small_images_is_scored_at_the_server(fmnist: Path, tmp_path: Path) -> None:
    request = request_for(fmnist, ("oneshot",), settings={"federation.rounds": 0})
    (result,) = compare(request, tmp_path, HERE).runs
    assert (result.error, result.rounds) == (None, ())
    assert result.head_accuracy > 0.3, "chance is 0.1"


def test_mean_and_spread_over_the_seeds(fmnist: Path, tmp_path: Path) -> None:
    runs = [run_of(best, 0.5, seed=seed) for seed, best in ((0, 0.6), (1, 0.7))]
    (row,) = rows(runs)
    best = row.over_seeds("best_accuracy")
    assert best is not None
    assert best.mean == pytest.approx(0.65)
    assert best.deviation == pytest.approx(0.1 / 2**0.5)
    assert best.percent() == "65.00 ± 7.07"
    assert (row.seconds, row.megabytes, len(row.runs)) == (2.0, 3.0, 2)
    assert (Spread.of([0.5]).percent(), Spread.of([0.5]).text(3)) == ("50.00", "0.500")
    run: Run = request_for(fmnist, ("fedavg",)).runs()[0]
    write_outputs(tmp_path, [run.failed("all <lost>")], "t")
    assert "all &lt;lost&gt;" in (tmp_path / "report.html").read_text()


SCRIPT = """
import sys
from pathlib import Path
from tests.helpers.benchmarks import request_for
from fedmr_med.lab.bench.compare import compare
from fedmr_med.lab.comparison.launchers import Resources
if __name__ == "__main__":
    request = request_for(Path(sys.argv[1]), ("fedavg", "feddc"), settings={"federation.rounds": 12})
    compare(request, Path(sys.argv[2]), Resources(workers=2))
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_kill_in_the_middle_and_run_again(fmnist: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    out = tmp_path / "out"
    command = [sys.executable, str(script), str(fmnist), str(out)]
    root = REPOSITORY
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, env=environment, cwd=root)
    while len(list(out.glob("runs/*/checkpoint.pt"))) < 2:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert workers
    assert not psutil.wait_procs(workers, timeout=60)[1], "the workers end with their parent"
    assert not (out / "results.json").exists()
    subprocess.run(command, env=environment, cwd=root, check=True)
    again = read_result(out / "results.json", RunResults).runs
    request = request_for(fmnist, ("fedavg", "feddc"), settings={"federation.rounds": 12})
    assert without_times(again) == without_times(compare(request, tmp_path / "whole", HERE).runs)


def test_the_seed_of_a_cross_validation_names_the_part_that_is_scored() -> None:
    request = BenchRequest(dataset="isic2019", methods=("oneshot",), absent=("bcn",), cross_validate=5, seeds=(1, 6, 3))
    runs = request.runs()
    assert [[site.data.test_part for site in run.sites.values()] for run in runs] == [[1] * 5, [1] * 5, [3] * 5]
    assert len({run.name for run in runs}) == 3
    plain = request.model_copy(update={"cross_validate": None}).runs()
    assert {site.data.test_part for site in plain[0].sites.values()} == {None}
    assert plain[0].name != runs[0].name
