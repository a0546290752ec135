"""FLamby's datasets by its own classes, its own benchmark with FedMR, and what is refused."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from fedmr_med import data, models
from fedmr_med.data.transforms import IsicTest
from fedmr_med.errors import ConfigError
from fedmr_med.lab.flamby import register
from fedmr_med.lab.flamby.checkout import find_dataset, published, results_of, strategies_of
from fedmr_med.lab.flamby.compare import compare
from fedmr_med.lab.flamby.datasets import known_set
from fedmr_med.lab.flamby.job import flamby_job
from fedmr_med.lab.flamby.loaders import class_numbers
from fedmr_med.lab.flamby.request import CompareRequest, SetRequest
from fedmr_med.lab.flamby.results import FlambyResults
from fedmr_med.lab.flamby.sets import set_runs
from fedmr_med.lab.flamby.strategy import FedMR
from fedmr_med.runner import Federation
from fedmr_med.schema import validated
from fedmr_med.sites import FlambySource, SiteConfig
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises
from tests.helpers.flamby_clients import CENTERS, PER_CENTER
from tests.helpers.pictures import flamby_site, isic_task

SMALL = {"federation.rounds": 2, "train.updates": 5, "model.options.hidden": 8}


@pytest.fixture
def heart(flamby_strategies: ModuleType, shared_data: Path) -> Path:
    return shared_data / "heart_disease"


@pytest.mark.parametrize("center", CENTERS[3:])
def test_fed_isic2019_by_flambys_class_equals_our_reader(
    flamby_strategies: ModuleType, prepared: Path, center: int
) -> None:
    task = isic_task(200).model_copy(update={"transform": "none"})
    source = FlambySource(source="flamby", dataset="fed_isic2019", center=center, root=prepared)
    theirs = data.load(SiteConfig(data=source), task, seed=0)
    site = flamby_site(prepared, center, max_bad_fraction=1.0)
    ours = data.load(site, isic_task(200), seed=0)
    assert ours.test.labels.tolist() == theirs.test.labels[:PER_CENTER].tolist()
    assert ours.train.labels.tolist() == theirs.train.labels[:PER_CENTER].tolist()
    transform = IsicTest(200)
    assert theirs.plain is not None
    for index in range(0, PER_CENTER, 7):
        assert np.array_equal(transform(ours.test[index], 0), theirs.test[index])
        assert np.array_equal(transform(ours.train[index], 0), theirs.plain[index]), "prototypes: without augmentation"


def test_the_baseline_of_isic_gives_the_feature_before_its_dropout(flamby_strategies: ModuleType) -> None:
    network = models.build("flamby_baseline", num_classes=8, dataset="fed_isic2019").train()
    features, logits = network(torch.randn(2, 3, 64, 64))
    assert (features.shape, logits.shape) == ((2, 1280), (2, 8))
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_017_796


def test_a_baseline_of_one_output_gets_one_per_class(flamby_strategies: ModuleType) -> None:
    network = models.build("flamby_baseline", num_classes=2, dataset="fed_camelyon16").eval()
    assert [part.shape for part in network(torch.randn(3, 7, 2048))] == [(3, 64), (3, 2)]


@pytest.mark.parametrize("method", ["fedavg", "fedmr"])
def test_heart_disease_runs_from_end_to_end(heart: Path, method: str, tmp_path: Path) -> None:
    job, sites = flamby_job("fed_heart_disease", method, root=heart, changes=SMALL)
    assert (job.train.batch_size, job.train.lr, len(sites)) == (4, 0.001, 4)
    state = Federation(job, sites, tmp_path).run()
    assert set(state.history.rounds[-1].sites) == set(sites)
    assert state.history.evaluations[-1].pooled.samples == 254
    shared = state.history.rounds[-1].sites["center-2"].shared_classes
    assert shared == (("disease",) if method == "fedmr" else ()), "Switzerland trains on one class only"


def test_raw_attributes_are_no_features(heart: Path) -> None:
    job, _ = flamby_job("fed_heart_disease", "fedmr", root=heart)
    with raises("model.raw-features", "model.options"):
        models.build(job.model.name, num_classes=2, **job.model.options)


@pytest.mark.parametrize("name", ["fed_tcga_brca", "fed_ixi", "fed_kits19", "fed_lidc_idri", "fed_synthetic"])
def test_other_tasks_than_classification_are_refused(name: str) -> None:
    with raises("data.not-classification"):
        known_set(name)


def test_without_flamby_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDMR_MED_FLAMBY", raising=False)
    monkeypatch.setattr("fedmr_med.lab.flamby.checkout._find", lambda name, checkout: (None, "FLamby is not installed"))
    with pytest.raises(ConfigError, match=r"FLamby is not installed\. git clone .*pip install -e '\.\[flamby\]'"):
        flamby_job("fed_heart_disease", "fedmr")


@pytest.mark.parametrize("labels", [torch.tensor([0.0, 0.5]), torch.tensor([0, 2]), torch.tensor([-1, 0])])
def test_labels_that_are_no_classes_are_refused(labels: torch.Tensor) -> None:
    with raises("data.label"):
        class_numbers(labels, 2)


def test_the_learning_rate_of_a_job_is_that_of_flambys_fedavg(flamby_strategies: ModuleType, tmp_path: Path) -> None:
    job, _ = flamby_job("fed_camelyon16", "fedavg", root=tmp_path)
    assert (job.train.lr, job.train.batch_size) == (0.3162278, 16)


def test_the_published_numbers_kept_here_are_those_of_the_checkout(flamby_strategies: ModuleType) -> None:
    dataset = find_dataset(None, "fed_isic2019")
    theirs = results_of(dataset)
    assert theirs.keys() == published().results.keys()
    for method, ours in published().results.items():
        assert ours.pooled == pytest.approx(theirs[method].pooled, abs=6e-4)
        assert ours.std == pytest.approx(theirs[method].std, abs=6e-4)
        assert ours.centers == pytest.approx(theirs[method].centers, abs=6e-4)
    settings = strategies_of(dataset)
    for name, ours in published().strategies.items():
        assert {key: settings[name][key] for key in ours} == ours


def test_flambys_own_benchmark_looks_fedmr_up(flamby_strategies: ModuleType) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("seaborn")
    register()
    register()
    assert flamby_strategies.FedMR is FedMR
    from flamby.benchmarks.benchmark_utils import find_xps_in_df

    row = {"Test": "Pooled Test", "Metric": 0.5, "seed": 0, "optimizer_class": str(torch.optim.SGD), "mu1": 0.001}
    frame = pandas.DataFrame([row | {"Method": "FedAvg100"}, row | {"Method": "FedMR100"}]).assign(variant=np.nan)
    hyperparameters = {"optimizer_class": torch.optim.SGD, "mu1": 0.001, "variant": np.nan}
    assert list(find_xps_in_df(frame, hyperparameters, "FedMR", 100)) == [1]
    assert list(find_xps_in_df(frame, hyperparameters, "FedAvg", 100)) == [0]
    # A text where the column was empty so far, and the text found again.
    replayed = hyperparameters | {"variant": "replayed"}
    assert list(find_xps_in_df(frame, replayed, "FedMR", 100)) == []
    frame = frame.astype({"variant": object})
    frame.loc[1, "variant"] = "replayed"
    assert list(find_xps_in_df(frame, replayed, "FedMR", 100)) == [1]


CONFIG = """
{{"dataset": "fed_heart_disease", "results_file": {results!r}, "strategies": {{
  "FedAvg": {{"learning_rate": 0.001, "optimizer_class": "torch.optim.SGD"}},
  "FedMR": {{"learning_rate": 0.001, "optimizer_class": "torch.optim.SGD",
             "variant": "replayed", "hidden": 16, "seed": 42}}
}}}}
"""


@pytest.mark.slow
def test_flambys_own_script_and_compare_give_the_same_numbers(
    flamby_strategies: ModuleType, heart: Path, tmp_path: Path
) -> None:
    """Its unmodified fed_benchmark.py as the tutorial starts it, one round (--debug); and a second time, to resume."""
    checkout = str(Path(flamby_strategies.__file__ or "").parents[2])
    config, results = tmp_path / "config.json", tmp_path / "theirs.csv"
    config.write_text(CONFIG.format(results=str(results)).replace("'", '"'))
    tutorial = str(REPOSITORY / "docs" / "tutorials" / "inside_flamby.py")
    options = ["--config-file-path", str(config), "--seed", "42", "--debug"]
    command = [sys.executable, tutorial, checkout, f"fed_heart_disease={heart}", *options]
    environment = os.environ | {"TQDM_DISABLE": "1"}
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    with results.open() as stream:
        theirs = {(row["Method"], row["Test"]): float(row["Metric"]) for row in csv.DictReader(stream)}
    methods = ["FedAvg100", "FedMR100", "Pooled Training", *(f"Local {number}" for number in range(4))]
    assert {method for method, _ in theirs} == set(methods)
    request = {"methods": ("fedmr",), "strategies": ("FedAvg",), "seeds": (42,), "rounds": 1}
    ours = compare(SetRequest(dataset="fed_heart_disease", data=heart, **request), tmp_path / "ours")
    names = {"fedmr": "FedMR100", "FedAvg": "FedAvg100"}
    for row in (row for row in ours.rows if row.source != "published"):
        test = "Pooled Test" if row.test == "pooled" else f"client_test_{row.test[-1]}"
        assert row.accuracy == theirs[names[row.method], test], (row.method, test)


def test_compare_on_heart_disease_has_its_metric_and_the_published_rows_and_resumes(
    heart: Path, tmp_path: Path
) -> None:
    asked = {"methods": ("fedavg", "fedmr"), "strategies": ("FedProx",), "rounds": 1, "updates": 2}
    request = SetRequest(dataset="fed_heart_disease", data=heart, **asked)
    results = compare(request, tmp_path)
    trained = {(row.method, row.source) for row in results.rows if row.source != "published"}
    assert trained == {("fedavg", "ours"), ("fedmr", "ours"), ("FedProx", "flamby")}
    assert {row.test for row in results.rows} == {"pooled", *(f"center-{number}" for number in range(4))}
    assert {row.metric for row in results.rows} == {"accuracy"}
    (pooled,) = [row for row in results.rows if (row.method, row.source, row.test) == ("FedAvg", "published", "pooled")]
    assert (round(pooled.score, 3), round(pooled.std or 0, 3)) == (0.748, 0.027)
    page = (tmp_path / "report.html").read_text()
    assert "fedmr, BN first, center-0: " in page, "a bar says what it stands for"
    assert "balanced accuracy" not in page.lower()
    lines = (tmp_path / "results.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * 5
    assert compare(request, tmp_path) == results, "nothing is run again"
    assert FlambyResults.model_validate_json(results.model_dump_json()) == results


def test_without_its_weights_our_method_is_flambys_fedavg_on_the_same_network(heart: Path, tmp_path: Path) -> None:
    """So a row of FedMR's stands beside one that differs in the losses alone."""
    runs = set_runs(SetRequest(dataset="fed_heart_disease", data=heart, methods=("fedavg", "fedmr"), strategies=()))
    dataset = find_dataset(None, "fed_heart_disease")
    fedavg, fedmr = (run._settings(dataset) for run in runs)
    assert fedavg.pop("mu1") == fedavg.pop("mu2") == 0
    assert (fedavg.pop("variant"), fedmr.pop("variant")) == ("paper", "replayed")
    assert fedavg == fedmr == {"learning_rate": 0.001, "optimizer_class": torch.optim.SGD, "seed": 0, "hidden": 16}


def test_a_strategy_that_the_configuration_has_not_is_named(heart: Path) -> None:
    with raises("config.unknown-name", "strategies"):
        set_runs(SetRequest(dataset="fed_heart_disease", data=heart, strategies=("FedAvgFineTuning",)))


def test_data_that_flamby_cannot_read_is_a_failed_run(flamby_strategies: ModuleType, tmp_path: Path) -> None:
    request = SetRequest(dataset="fed_heart_disease", data=tmp_path / "nothing", methods=("fedmr",), strategies=())
    (failure,) = compare(request, tmp_path / "out").failed
    assert "FLamby cannot read fed_heart_disease" in failure


ISIC_ONLY = CompareRequest.model_fields.keys() - SetRequest.model_fields.keys()


@pytest.mark.parametrize("option", sorted(ISIC_ONLY))
def test_an_option_that_only_isic_has_is_refused_by_name(option: str) -> None:
    content = {"dataset": "fed_heart_disease", "data": "heart", option: True}
    with raises("config.conflict", option) as caught:
        validated(SetRequest, content, "flamby compare")
    assert f"--{option.replace('_', '-')}" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"methods": ["moon"]}, ("config.unknown-name", "methods")),
        ({"dataset": "fed_ixi"}, ("data.not-classification", None)),
        ({"data": "demo"}, ("config.conflict", "data")),
    ],
)
def test_what_another_dataset_cannot_take_is_named(changes: dict[str, Any], fault: tuple[str, str | None]) -> None:
    with raises(*fault):
        validated(SetRequest, {"dataset": "fed_heart_disease", "data": "heart"} | changes, "flamby compare")
