"""MedMNIST's sets, from a drawn .npz in the official form."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.config import TaskConfig
from fedmr_med.data.datasets import DATASETS, Dataset
from fedmr_med.errors import DataError
from fedmr_med.lab.datasets import medmnist
from fedmr_med.lab.datasets.benchmark import load_benchmark
from fedmr_med.sites import BenchmarkSource
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises

SETS = [record for record in vars(medmnist).values() if isinstance(record, Dataset)]
FOLDS = {"train": 6, "val": 1, "test": 2}


def write(record: Dataset, path: Path, **changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """Write a small set as MedMNIST publishes it: labels of shape (n, 1), grey images without a channel axis."""
    generator = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for fold, each in FOLDS.items():
        labels = generator.permutation(np.repeat(np.arange(record.num_classes), each))
        channels = () if record.channels == 1 else (record.channels,)
        arrays[f"{fold}_images"] = generator.integers(0, 256, (len(labels), 28, 28, *channels), dtype=np.uint8)
        arrays[f"{fold}_labels"] = labels[:, None].astype(np.uint8)
    np.savez(path, **{key: value for key, value in (arrays | changes).items() if value is not None})
    return arrays


def task(record: Dataset) -> TaskConfig:
    form = {"image_size": 28, "channels": record.channels, "transform": record.protocol.transform}
    return TaskConfig(dataset=record.name, class_names=record.class_names, split=record.protocol.split, **form)


@pytest.mark.parametrize("record", SETS, ids=lambda record: record.name)
def test_train_and_test_are_the_official_ones(record: Dataset, tmp_path: Path) -> None:
    written = write(record, tmp_path / f"{record.name}.npz")
    assert record.read is not None
    for place in (tmp_path, tmp_path / f"{record.name}.npz"):
        data = record.read(record, place, task(record))
        for fold, name in ((data.train, "train"), (data.test, "test")):
            assert np.array_equal(fold.labels, written[f"{name}_labels"][:, 0])
            assert np.array_equal(fold[3].squeeze(), written[f"{name}_images"][3])


@pytest.mark.parametrize("record", SETS, ids=lambda record: record.name)
def test_its_split_deals_every_class(record: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS._items, record.name, record)
    write(record, tmp_path / f"{record.name}.npz")
    clients = (record.num_classes + 1) // 2
    dealt: list[int] = []
    for client in range(clients):
        source = BenchmarkSource(source="benchmark", client=client, clients=clients, root=tmp_path)
        labels = load_benchmark(source, task(record), seed=0).train.labels
        assert len(set(labels.tolist())) == 2
        dealt += labels.tolist()
    assert sorted(dealt) == sorted(np.repeat(np.arange(record.num_classes), FOLDS["train"]).tolist())


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"train_images": None}, None),
        ({"test_labels": np.zeros((18, 1))}, None),
        ({"train_labels": np.zeros((54, 14), dtype=np.uint8)}, "labels"),  # a set with several labels per image
        ({"train_images": np.zeros((54, 64, 64, 3), dtype=np.uint8)}, "images"),  # MedMNIST+ in another size
    ],
)
def test_another_file_is_refused(changes: dict[str, np.ndarray | None], key: str | None, tmp_path: Path) -> None:
    record = medmnist.PATHMNIST
    write(record, tmp_path / "pathmnist.npz", **changes)
    assert record.read is not None
    with raises("data.damaged", key, DataError):
        record.read(record, tmp_path, task(record))


def test_another_set_is_not_taken_for_it(tmp_path: Path) -> None:
    write(medmnist.BLOODMNIST, tmp_path / "bloodmnist.npz")
    assert medmnist.read_official(medmnist.PATHMNIST, tmp_path) is None


def test_the_package_makes_each_known_by_its_name() -> None:
    content = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    points = content["project"]["entry-points"]["fedmr_med.datasets"]
    assert {name: place for name, place in points.items() if "medmnist:" in place} == {
        record.name: f"fedmr_med.lab.datasets.medmnist:{record.name.upper()}" for record in SETS
    }
    assert len(SETS) == 8
