"""FLamby's datasets by its own classes, its own benchmark with FedMR, and what is refused."""

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
from fedmr_med.lab.flamby.datasets import class_names
from fedmr_med.lab.flamby.job import flamby_job
from fedmr_med.lab.flamby.loaders import class_numbers
from fedmr_med.lab.flamby.results import SetRequest
from fedmr_med.lab.flamby.sets import compare_on
from fedmr_med.lab.flamby.strategy import FedMR
from fedmr_med.runner import Federation
from fedmr_med.sites import FlambySource, SiteConfig
from tests.helpers.errors import raises
from tests.helpers.flamby_clients import CENTERS, PER_CENTER
from tests.helpers.pictures import flamby_site, isic_task

SMALL = {"federation.rounds": 2, "train.updates": 5, "model.options.hidden": 8}


@pytest.fixture
def heart(flamby_strategies: ModuleType, shared_data: Path) -> Path:
    pytest.importorskip("pandas")
    return shared_data / "heart_disease"


@pytest.mark.parametrize("center", CENTERS[3:])
def test_fed_isic2019_by_flambys_class_equals_our_reader(
    flamby_strategies: ModuleType, prepared: Path, center: int
) -> None:
    pytest.importorskip("pandas")
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
    pytest.importorskip("pandas")
    network = models.build("flamby_baseline", num_classes=8, dataset="fed_isic2019").train()
    features, logits = network(torch.randn(2, 3, 64, 64))
    assert (features.shape, logits.shape) == ((2, 1280), (2, 8))
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_017_796


def test_a_baseline_of_one_output_gets_one_per_class(flamby_strategies: ModuleType) -> None:
    pytest.importorskip("pandas")
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
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 5), torch.arange(8) % 2))
    arguments: dict[str, Any] = {"learning_rate": 0.1, "num_updates": 1, "nrounds": 1}
    strategy = FedMR(
        [loader], torch.nn.Sequential(torch.nn.Linear(5, 2)), torch.nn.CrossEntropyLoss(), torch.optim.SGD, **arguments
    )
    with raises("model.raw-features"):
        strategy.run()


@pytest.mark.parametrize("name", ["fed_tcga_brca", "fed_ixi", "fed_kits19", "fed_lidc_idri", "fed_synthetic"])
def test_other_tasks_than_classification_are_refused(name: str) -> None:
    with raises("data.not-classification"):
        class_names(name)


def test_without_flamby_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDMR_MED_FLAMBY", raising=False)
    monkeypatch.setattr("fedmr_med.lab.flamby.checkout._find", lambda name, checkout: (None, "FLamby is not installed"))
    with pytest.raises(ConfigError, match=r"FLamby is not installed\. git clone .*pip install -e '\.\[flamby\]'"):
        flamby_job("fed_heart_disease", "fedmr")


@pytest.mark.parametrize("labels", [torch.tensor([0.0, 0.5]), torch.tensor([0, 2]), torch.tensor([-1, 0])])
def test_labels_that_are_no_classes_are_refused(labels: torch.Tensor) -> None:
    with raises("data.label"):
        class_numbers(labels, 2)


def test_flambys_own_benchmark_accepts_fedmr(flamby_strategies: ModuleType) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("seaborn")
    register()
    register()
    assert flamby_strategies.FedMR is FedMR
    from flamby.benchmarks.benchmark_utils import find_xps_in_df

    optimizer = str(torch.optim.SGD)
    row = {"Test": "Pooled Test", "Metric": 0.5, "seed": 0, "optimizer_class": optimizer, "mu1": 0.001}
    frame = pandas.DataFrame([row | {"Method": "FedAvg100"}, row | {"Method": "FedMR100"}])
    hyperparameters = {"optimizer_class": torch.optim.SGD, "mu1": 0.001}
    assert list(find_xps_in_df(frame, hyperparameters, "FedMR", 100)) == [1]
    assert list(find_xps_in_df(frame, hyperparameters, "FedAvg", 100)) == [0]


def test_compare_runs_on_heart_disease_resumes_and_draws(heart: Path, tmp_path: Path) -> None:
    request = SetRequest(dataset="fed_heart_disease", data=heart, rounds=1, updates=2)
    results = compare_on(request, tmp_path)
    assert {row.method for row in results.rows} == {"fedavg", "fedmr"}
    assert {row.test for row in results.rows} == {"pooled", *(f"center-{number}" for number in range(4))}
    assert "fedmr, BN average, center-0: " in (tmp_path / "report.html").read_text(), "a bar says what it stands for"
    lines = (tmp_path / "results.csv").read_text().splitlines()
    assert len(lines) == 1 + len(results.rows)
    assert compare_on(request, tmp_path) == results, "nothing is run again"
