"""Benchmark datasets as clients get them."""

from pathlib import Path

import numpy as np
import pytest

from fedmr_med.config import TaskConfig
from fedmr_med.data.datasets import DATASETS
from fedmr_med.data.datasets.base import DATA_VARIABLE
from fedmr_med.data.partition import partition
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.lab.datasets.benchmark import load_benchmark, load_test
from fedmr_med.lab.datasets.cifar10 import LAYOUT as CIFAR10
from fedmr_med.lab.datasets.shakespeare import SHAKESPEARE
from fedmr_med.sites import BenchmarkSource
from tests.helpers.archives import (
    ARRAYS,
    cifar_batch,
    read_dataset,
    task_of,
    write_manifest,
    write_mini,
    write_mini_shakespeare,
    write_tar,
)
from tests.helpers.errors import raises


def source_of(root: Path | None, client: int = 0, clients: int = 5, **settings) -> BenchmarkSource:
    return BenchmarkSource(source="benchmark", client=client, clients=clients, root=root, **settings)


@pytest.mark.parametrize("name", ARRAYS)
def test_every_dataset_is_read_from_its_folder_and_from_the_folder_above(name, tmp_path: Path):
    written = write_mini(name, tmp_path / name, per_class=2, test_per_class=1)
    for root in (tmp_path, tmp_path / name):
        dataset = read_dataset(name, root)
        for fold, (images, labels) in zip((dataset.train, dataset.test), written, strict=True):
            assert np.array_equal(fold.items, images)
            assert np.array_equal(fold.labels, labels)
            assert (fold.items.dtype, fold.labels.dtype) == (np.uint8, np.int64)
        assert dataset.class_names == DATASETS.get(name).class_names


def test_labels_beyond_the_classes_are_refused(tmp_path: Path):
    batch = cifar_batch({"data": np.zeros((1, 3072), np.uint8), "labels": [10]})
    write_tar(tmp_path / CIFAR10.archive, {f"{CIFAR10.folder}/{n}": batch for n in (*CIFAR10.train, CIFAR10.test)})
    with raises("data.label", "labels"):
        read_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"x_train": np.zeros((4, 28, 28, 3), np.uint8)}, ("data.damaged", "images")),
        ({"x_train": np.zeros((4, 32, 32, 3), np.float32)}, ("data.damaged", "images")),
        ({"y_train": np.zeros(3, int)}, ("data.damaged", "labels")),
        ({"y_test": np.full(4, -1)}, ("data.label", "labels")),
        ({"x_test": np.zeros((0, 32, 32, 3), np.uint8), "y_test": np.zeros(0, int)}, ("data.damaged", "labels")),
    ],
)
def test_wrong_arrays_are_refused(change, fault: tuple[str, ...], tmp_path: Path):
    images, labels = np.zeros((4, 32, 32, 3), np.uint8), np.zeros(4, int)
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels} | change
    np.savez(tmp_path / "svhn.npz", **arrays)
    with raises(*fault):
        read_dataset("svhn", tmp_path)


def test_missing_data_names_the_folder_and_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DataError, match=rf"{tmp_path}/absent holds no fmnist.*fedmr-med data download fmnist"):
        read_dataset("fmnist", tmp_path / "absent")
    (tmp_path / "notes.txt").write_text("nothing")
    with raises("data.missing"):
        read_dataset("fmnist", tmp_path / "notes.txt")
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(DataError, match=rf"{DATA_VARIABLE}.*fedmr-med data download svhn"):
        load_benchmark(source_of(None), task_of("svhn"), seed=0)
    task = task_of("fmnist").model_copy(update={"dataset": "mnist"})
    with pytest.raises(ConfigError, match=r"task\.dataset: 'mnist'.*cifar10.*Did you mean fmnist"):
        load_benchmark(source_of(tmp_path), task, seed=0)
    with raises("config.conflict", "data.source"):
        load_benchmark(source_of(tmp_path), task_of("isic2019"), seed=0)


def test_the_environment_names_the_folder_of_all_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_mini("fmnist", tmp_path / "fmnist")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert len(load_benchmark(source_of(None), task_of("fmnist"), seed=0).train) == 12


@pytest.mark.parametrize("split", ["P5C4", "dir0.5", "iid"])
def test_each_client_gets_its_part_of_both_sets(split, tmp_path: Path):
    (images, labels), (_, test_labels) = write_mini("fmnist", tmp_path, per_class=30)
    parts = partition(labels, split, 5, seed=3)
    for client in range(5):
        data = load_benchmark(source_of(tmp_path, client), task_of("fmnist", split), seed=3)
        assert np.array_equal(data.train.labels, labels[parts[client]])
        assert np.array_equal(np.stack([data.train[i] for i in range(len(data.train))]), images[parts[client]])
        assert np.array_equal(data.test.labels, test_labels[client::5])
        assert not data.is_demo


def test_where_the_server_scores_the_clients_hold_no_test_images(tmp_path: Path):
    _, (test_images, test_labels) = write_mini("fmnist", tmp_path)
    source = source_of(tmp_path, holds_test=False)
    assert len(load_benchmark(source, task_of("fmnist"), seed=0).test) == 0
    whole = load_test(source, task_of("fmnist"), seed=0)
    assert np.array_equal(whole.items, test_images)
    assert np.array_equal(whole.labels, test_labels)


def test_clients_of_a_process_share_one_copy_of_the_data(tmp_path: Path):
    write_mini("fmnist", tmp_path, per_class=10)
    folds = [load_benchmark(source_of(tmp_path, c, 50), task_of("fmnist", "iid"), seed=0) for c in range(50)]
    assert len({id(data.train.items) for data in folds}) == 1
    assert len({id(data.test.items) for data in folds}) == 1


def test_the_seed_decides_the_share(tmp_path: Path):
    write_mini("fmnist", tmp_path, per_class=20)

    def items(seed: int) -> np.ndarray:
        train = load_benchmark(source_of(tmp_path), task_of("fmnist", "iid"), seed=seed).train
        return np.stack([train[row] for row in range(len(train))])

    assert np.array_equal(items(1), items(1))
    assert not np.array_equal(items(1), items(2))


def test_a_fraction_keeps_the_classes_in_proportion(tmp_path: Path):
    write_mini("fmnist", tmp_path, per_class=20)
    shares = [
        load_benchmark(source_of(tmp_path, c, fraction=0.25), task_of("fmnist"), seed=0).train.labels for c in range(5)
    ]
    assert np.array_equal(np.bincount(np.concatenate(shares)), np.full(10, 5))


def test_a_split_may_ask_for_a_subset_of_the_classes(tmp_path: Path):
    write_mini("fmnist", tmp_path, per_class=4, test_per_class=3)
    task = task_of("fmnist", "P3C2-subset")
    with raises("split.too-few-slots"):
        load_benchmark(source_of(tmp_path, clients=3), task_of("fmnist", "P3C2"), seed=0)
    held = [np.unique(load_benchmark(source_of(tmp_path, c, 3), task, seed=0).train.labels) for c in range(3)]
    assert np.array_equal(np.concatenate(held), np.arange(6))
    # Nobody learns the other classes, so the test set leaves them out.
    test = load_test(source_of(tmp_path, clients=3), task, seed=0)
    assert np.array_equal(np.bincount(test.labels), np.full(6, 3))


def test_folders_with_a_manifest_are_dealt_like_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEDMR_MED_CACHE", str(tmp_path / "cache"))
    write_manifest(tmp_path / "odir", "odir")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    info = DATASETS.get("odir")
    task = TaskConfig(dataset="odir", class_names=info.class_names, image_size=8, transform="plain", split="P4C2")
    sites = [load_benchmark(source_of(None, c, 4), task, seed=0) for c in range(4)]
    assert [np.unique(site.train.labels).tolist() for site in sites] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [len(site.train) for site in sites] == [6] * 4
    assert sorted(label for site in sites for label in site.test.labels) == list(range(8))
    for site in sites:
        assert all(site.train[i].mean() // 10 == label for i, label in enumerate(site.train.labels))
    with raises("file.missing", kind=DataError):
        load_benchmark(source_of(tmp_path / "absent", 0, 4), task, seed=0)


def test_requests_that_do_not_fit_are_refused(tmp_path: Path):
    write_mini("fmnist", tmp_path)
    with raises("config.missing", "task.split"):
        load_benchmark(source_of(tmp_path), task_of("fmnist", None), seed=0)
    with raises("split.clients"):
        load_benchmark(source_of(tmp_path), task_of("fmnist", "P10C2"), seed=0)
    with raises("config.value", "data.client"):
        load_benchmark(source_of(tmp_path, client=5), task_of("fmnist"), seed=0)
    task = task_of("fmnist").model_copy(update={"class_names": ("a", "b")})
    with raises("data.class-names", "task.class_names"):
        load_benchmark(source_of(tmp_path), task, seed=0)


def test_shakespeare_clients_are_speakers(tmp_path: Path):
    write_mini_shakespeare(tmp_path, speakers=6, samples=10)
    task = TaskConfig(dataset="shakespeare", class_names=SHAKESPEARE.class_names, image_size=80, transform="none")
    sites = [load_benchmark(source_of(tmp_path, c, 4), task, seed=0) for c in range(4)]
    assert [len(site.train) for site in sites] == [10] * 4
    assert [len(site.test) for site in sites] == [3] * 4
    assert len(load_test(source_of(tmp_path, 0, 4), task, seed=0)) == 12
    assert len({site.train[0].tobytes() for site in sites}) == 4
    with raises("config.conflict", "task.split"):
        load_benchmark(source_of(tmp_path), task.model_copy(update={"split": "iid"}), seed=0)


@pytest.mark.slow
def test_the_real_fashion_mnist(shared_data: Path):
    if not (shared_data / "fmnist").is_dir():
        pytest.skip("no Fashion-MNIST beside the checkout")
    dataset = read_dataset("fmnist", shared_data / "fmnist")
    assert dataset.train.items.shape == (60_000, 28, 28, 1)
    assert np.array_equal(np.bincount(dataset.train.labels), np.full(10, 6_000))
    assert np.array_equal(np.bincount(dataset.test.labels), np.full(10, 1_000))
    data = load_benchmark(source_of(shared_data, client=4), task_of("fmnist"), seed=0)
    assert np.array_equal(np.bincount(data.train.labels), [0] * 8 + [6_000] * 2)
    # Trousers leave the corners dark and the middle bright.
    trousers = dataset.train.items[dataset.train.labels == 1].mean(axis=0)[..., 0]
    assert trousers[:4, :4].mean() < 5
    assert trousers[8:20, 10:18].mean() > 50


def test_the_real_cifar10_subset(shared_data: Path):
    if not (shared_data / "cifar10").is_dir():
        pytest.skip("no CIFAR-10 beside the checkout")
    dataset = read_dataset("cifar10", shared_data / "cifar10")
    assert np.array_equal(np.bincount(dataset.train.labels), np.full(10, 1_500))
    assert dataset.test.items.shape == (3_000, 32, 32, 3)
