"""The comparison with FLamby: the same batches for all, resumable, honest about what is missing and what differs."""

import csv
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmr_med.cli import app
from fedmr_med.data.cache import CACHE_VARIABLE
from fedmr_med.data.demo import DEMO
from fedmr_med.data.flamby_isic import LESIONS_FILE, PREPARED_FOLDER
from fedmr_med.errors import FedMRError
from fedmr_med.evaluation.results import read_result
from fedmr_med.lab.flamby import checkout
from fedmr_med.lab.flamby.checkout import published
from fedmr_med.lab.flamby.compare import compare
from fedmr_med.lab.flamby.data import load_data, present_centers
from fedmr_med.lab.flamby.isic import IsicRun, average_buffers
from fedmr_med.lab.flamby.request import CompareRequest
from fedmr_med.lab.flamby.results import FlambyResults, Row
from fedmr_med.lab.flamby.tables import COLUMNS, _csv_row
from fedmr_med.report.progress import Progress
from fedmr_med.schema import validated
from tests.helpers.errors import raises
from tests.helpers.pictures import write_csv, write_flamby_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder of six centres with six train and two test pictures each."""
    root = tmp_path_factory.mktemp("isic")
    write_flamby_folder(root)
    return root


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def small(data: Path, **changes: Any) -> CompareRequest:
    budget = {"rounds": 2, "updates": 2, "image_size": 32, "batch": 4, "centers": (1, 4), "bn": "first"}
    return validated(CompareRequest, {"data": data} | budget | changes, "the test")


@pytest.fixture
def no_flamby(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = None, "FLamby is not installed"
    monkeypatch.setattr("fedmr_med.lab.flamby.compare.find_strategies", lambda checkout_path: missing)


def test_fedavg_through_the_executor_is_flambys_fedavg(flamby_strategies: ModuleType, tmp_path: Path) -> None:
    """With FLamby's BatchNorm policy, on the same batches, after two rounds."""
    asked = small(DEMO, batch=16, centers=(4, 5))
    reports: list[Progress] = []
    ours = IsicRun(asked, "ours", "fedavg", 0, ("first",)).train(tmp_path, reports.append)["first"]
    assert [report.done for report in reports] == [4, 8]
    theirs = IsicRun(asked, "flamby", "FedAvg", 0, ("first", "average")).train(tmp_path, reports.append)
    assert [report.done for report in reports[2:]] == list(range(1, 9))
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs["first"][name], atol=1e-5, rtol=1e-5, err_msg=name)
    statistics = [name for name in ours if name.endswith("running_mean")]
    assert any(np.abs(theirs["first"][name] - theirs["average"][name]).max() > 1e-3 for name in statistics)


@pytest.mark.nightly
@pytest.mark.slow
def test_every_strategy_of_flamby_gives_rows_for_both_policies(
    flamby_strategies: ModuleType, folder: Path, tmp_path: Path
) -> None:
    asked = small(folder, rounds=1, updates=1, methods=(), strategies=tuple(published().strategies), bn="both")
    rows = [row for row in compare(asked, tmp_path).rows if row.source == "flamby"]
    assert {(row.method, row.bn) for row in rows} == {
        (name, policy) for name in published().strategies for policy in ("average", "first")
    }


@pytest.mark.slow
def test_the_demo_ends_with_a_table_and_names_what_is_missing(no_flamby: None, tmp_path: Path) -> None:
    arguments = "flamby compare --data demo --methods fedavg,local --rounds 1 --updates 1 --centers 4,5 --bn average"
    result = CliRunner().invoke(app, [*arguments.split(), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for text in ("fedavg", "Local 5", "published", "DEMO", "flamby.strategies.Scaffold", "github.com/owkin/FLamby"):
        assert text in result.output
    printed = CliRunner().invoke(app, [*arguments.split(), "--json", "--out", str(tmp_path / "out")])
    content = json.loads(printed.stdout)
    assert {"flamby.strategies.FedAvg", "flamby.strategies.FedAdam"} <= set(content["missing"])
    ours = [row for row in content["rows"] if row["source"] == "ours"]
    expected = {("fedavg", "average"), ("Local 4", "own"), ("Local 5", "own")}
    assert {(row["method"], row["bn"]) for row in ours} == expected
    assert {row["test"] for row in ours} == {"pooled", "center-4", "center-5"}
    assert all({"method", "source", "bn", "test", "balanced_accuracy", "seed"} <= row.keys() for row in content["rows"])


@pytest.mark.slow
def test_finished_runs_are_not_done_again(
    no_flamby: None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = small(folder, rounds=1, updates=1, methods=("local",))
    before = compare(asked, tmp_path).rows
    done: list[str] = []
    execute = IsicRun.execute

    def recorded(self: IsicRun, *arguments: Any) -> Any:
        done.append(self.title)
        return execute(self, *arguments)

    monkeypatch.setattr(IsicRun, "execute", recorded)
    more = compare(small(folder, rounds=1, updates=1, methods=("local", "pooled")), tmp_path)
    assert done == ["Pooled Training, seed 0"]
    assert [row for row in more.rows if row.method.startswith("Local") and row.source == "ours"] == [
        row for row in before if row.source == "ours"
    ]
    assert read_result(tmp_path / "results.json", FlambyResults) == more
    with (tmp_path / "results.csv").open() as stream:
        table = list(csv.DictReader(stream))
    assert {"Test", "Method", "Metric", "seed"} <= table[0].keys()
    assert {row["Test"] for row in table} == {"Pooled Test", "client_test_1", "client_test_4"}
    assert {row["Method"] for row in table} == {"Local 1", "Local 4", "Pooled Training"}


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_go_on(
    no_flamby: None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def refuse(*arguments: Any) -> Any:
        raise FedMRError("Round 1 has 0 usable replies.", code="round.too-few-replies")

    monkeypatch.setattr("fedmr_med.lab.flamby.isic.Federation.run", refuse)
    results = compare(small(folder, rounds=1, updates=1, methods=("fedavg", "pooled")), tmp_path)
    assert results.failed == ("fedavg, first, seed 0: Round 1 has 0 usable replies.",)
    assert {row.method for row in results.rows if row.source == "ours"} == {"Pooled Training"}


@pytest.mark.nightly
@pytest.mark.slow
def test_runs_side_by_side_give_the_same_rows(no_flamby: None, folder: Path, tmp_path: Path) -> None:
    asked = small(folder, rounds=1, updates=2, methods=("local", "fedavg"))
    here = compare(asked, tmp_path / "here")
    assert compare(asked, tmp_path / "there", workers=2).rows == here.rows
    assert not list(tmp_path.rglob("checkpoint.pt")), "only scores are kept"


def test_leaked_lesions_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = write_flamby_folder(tmp_path)
    of_one = [image for image, _, center, _ in rows if center == 1]
    train, tested = of_one[0], of_one[3]
    lesions = [("L1" if image in (train, tested) else f"own {image}", image) for image in of_one]
    write_csv(tmp_path / LESIONS_FILE, ("lesion_id", "image_id"), lesions)
    whole = load_data(small(tmp_path))
    assert whole.leakage is not None
    assert (whole.leakage.leaked, whole.leakage.known, whole.leakage.tests) == (1, 2, 4)
    assert "--without-leaked" in whole.leakage.sentence(left_out=False)
    clean = load_data(small(tmp_path, without_leaked=True))
    assert {name: len(fold) for name, fold in clean.test.items()} == {"center-1": 1, "center-4": 2}
    assert clean.leakage == whole.leakage
    # A centre that does not take part leaks nothing.
    assert load_data(small(tmp_path, centers=(4,))).leakage.leaked == 0  # type: ignore[union-attr]


def test_centres_without_images_are_left_out(tmp_path: Path) -> None:
    rows = write_flamby_folder(tmp_path)
    for image, _, center, _ in rows:
        if center == 0:
            (tmp_path / PREPARED_FOLDER / f"{image}.jpg").unlink()
    assert present_centers(tmp_path, None) == (1, 2, 3, 4, 5)
    for path in (tmp_path / PREPARED_FOLDER).iterdir():
        path.unlink()
    with raises("data.empty"):
        present_centers(tmp_path, None)


def test_the_test_images_can_be_capped(folder: Path) -> None:
    assert {len(fold) for fold in load_data(small(folder, max_test=1)).test.values()} == {1}


def test_the_default_budget_is_flambys(folder: Path) -> None:
    asked = CompareRequest(data=folder)
    job = asked.job("fedavg", 0)
    assert {key: getattr(asked, key) for key in published().protocol} == published().protocol
    assert (job.federation.rounds, job.train.updates, job.train.batch_size, job.task.image_size) == (9, 100, 64, 200)
    assert (job.train.optimizer, job.train.lr, job.train.momentum, job.train.weight_decay) == ("sgd", 0.01, 0.0, 0.0)
    assert (job.loss.name, job.loss.class_weights) == ("focal", "flamby")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"methods": ("nothing",)}, ("config.unknown-name", "methods")),
        ({"strategies": ("FedNot",)}, ("config.unknown-name", "strategies")),
        ({"centers": (6,)}, ("config.value", "centers")),
    ],
)
def test_what_is_not_known_is_named(folder: Path, changes: dict[str, Any], fault: tuple[str, ...]) -> None:
    with raises(*fault):
        small(folder, **changes)


def test_a_folder_that_is_not_flamby_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("file.wrong-kind", "--flamby"):
        checkout.find_strategies(tmp_path)
    monkeypatch.setenv(checkout.VARIABLE, str(tmp_path))
    with raises("file.wrong-kind", "--flamby"):
        checkout.find_strategies(None)


def test_buffers_are_averaged_by_size_and_counters_take_the_largest() -> None:
    states = [
        {"w": np.zeros(1, np.float32), "mean": np.array([m], np.float32), "seen": np.array(n)}
        for m, n in ((1.0, 3), (4.0, 5))
    ]
    averaged = average_buffers(states, [2, 1], frozenset({"w"}))
    assert averaged["mean"].tolist() == [2.0]
    assert averaged["seen"] == 5
    assert averaged.keys() == {"mean", "seen"}


def test_the_csv_has_flambys_spelling_and_one_row_per_method_test_and_seed() -> None:
    """So that FLamby's plots and its resumption can read it."""
    about = {"method": "fedmr", "source": "ours", "test": "pooled", "balanced_accuracy": 0.5, "seed": 0}
    settings = {"mu1": 0.1, "mu2": 0.2}
    first, averaged = (_csv_row(Row(**about, bn=bn, settings=settings), 100) for bn in ("first", "average"))
    assert (first["Method"], averaged["Method"]) == ("fedmr100", "fedmr-bn-average-100")
    assert first["optimizer_class"] == "<class 'torch.optim.sgd.SGD'>"
    assert (first["mu1"], first["mu2"]) == (0.1, 0.2)
    assert first.keys() <= set(COLUMNS)
