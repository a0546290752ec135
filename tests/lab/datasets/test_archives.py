"""The official formats, whole, damaged and hostile."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.data.datasets import DATASETS
from fedmr_med.errors import DataError
from fedmr_med.lab.datasets import cifar100, fmnist, svhn
from fedmr_med.lab.datasets.archives import Folds, cifar
from fedmr_med.lab.datasets.archives import read_npz as read_npz_of
from fedmr_med.lab.datasets.cifar10 import LAYOUT as CIFAR10
from tests.helpers.archives import ARRAYS, cifar_batch, mini_arrays, write_mini, write_tar
from tests.helpers.errors import raises

OFFICIAL = {
    "cifar10": cifar(CIFAR10),
    "cifar100": cifar(cifar100.LAYOUT),
    "svhn": svhn.read_official,
    "fmnist": fmnist.read_official,
}


def read_official(name: str, place: Path) -> Folds | None:
    return OFFICIAL[name](DATASETS.get(name), place)


def read_npz(name: str, place: Path) -> Folds | None:
    return read_npz_of(DATASETS.get(name), place)


def test_cifar_is_read_from_the_archive_itself_and_from_the_extracted_folder(tmp_path: Path):
    (images, _), _ = write_mini("cifar10", tmp_path / "a", per_class=2)
    archive = tmp_path / "a" / CIFAR10.archive
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "b", filter="data")
    for place in (archive, tmp_path / "b", tmp_path / "b" / CIFAR10.folder):
        folds = read_official("cifar10", place)
        assert folds is not None
        assert np.array_equal(folds[0][0], images)


def test_fmnist_is_read_without_gzip_too(tmp_path: Path):
    import gzip

    (images, _), _ = write_mini("fmnist", tmp_path)
    packed = tmp_path / DATASETS.get("fmnist").files[0].name
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    folds = read_official("fmnist", tmp_path)
    assert folds is not None
    assert np.array_equal(folds[0][0], images)


@pytest.mark.parametrize("name", ARRAYS)
def test_nothing_is_found_in_an_empty_folder(name, tmp_path: Path):
    assert read_official(name, tmp_path) is None
    assert read_npz(name, tmp_path) is None


@pytest.mark.parametrize("name", ARRAYS)
def test_every_truncated_file_is_refused_by_name(name, tmp_path: Path):
    write_mini(name, tmp_path, per_class=3)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for length in (0, 10, len(whole) // 2, len(whole) - 20):
            path.write_bytes(whole[:length])
            with pytest.raises(DataError, match=rf"{path.name} is damaged.*fedmr-med data download {name}"):
                read_official(name, tmp_path)
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["cifar10", "fmnist"])
def test_a_flipped_bit_is_refused(name, tmp_path: Path):
    write_mini(name, tmp_path)
    path = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with raises("data.damaged"):
        read_official(name, tmp_path)


@pytest.mark.parametrize("name", ["svhn", "fmnist"])
def test_a_missing_file_beside_the_others_is_named(name, tmp_path: Path):
    write_mini(name, tmp_path)
    last = sorted(tmp_path.iterdir())[-1]
    last.unlink()
    with raises("data.missing") as error:
        read_official(name, tmp_path)
    assert last.name in str(error.value)


def test_an_archive_without_a_batch_is_refused(tmp_path: Path):
    batch = cifar_batch({"data": np.zeros((1, 3072), np.uint8), "labels": [0]})
    write_tar(tmp_path / CIFAR10.archive, {f"{CIFAR10.folder}/data_batch_1": batch})
    with raises("data.damaged"):
        read_official("cifar10", tmp_path)


@pytest.mark.parametrize(
    "batch",
    [
        {"data": np.zeros((2, 3000), np.uint8), "labels": [0, 1]},
        {"data": np.zeros((2, 3072), np.float32), "labels": [0, 1]},
        {"data": [1, 2], "labels": [0, 1]},
        {"data": np.zeros((2, 3072), np.uint8)},
        [1, 2],
    ],
)
def test_batches_of_another_form_are_refused(batch, tmp_path: Path):
    members = {f"{CIFAR10.folder}/{name}": cifar_batch(batch) for name in (*CIFAR10.train, CIFAR10.test)}
    write_tar(tmp_path / CIFAR10.archive, members)
    with raises("data.damaged"):
        read_official("cifar10", tmp_path)


class Hostile:
    """Unpickling this would create the file ``proof``."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.proof,)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_cannot_run_anything(protocol, tmp_path: Path):
    proof = tmp_path / "proof"
    content = pickle.dumps({b"data": Hostile(proof), b"labels": [0]}, protocol=protocol)
    pickle.loads(content)
    assert proof.exists(), "the pickle is harmless: this test would show nothing"
    proof.unlink()

    folder = tmp_path / CIFAR10.folder
    folder.mkdir()
    for name in (*CIFAR10.train, CIFAR10.test):
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=r"asks for .*, which is refused"):
        read_official("cifar10", folder)
    assert not proof.exists()


def test_builtins_are_refused_as_well(tmp_path: Path):
    for name in (*CIFAR10.train, CIFAR10.test):
        (tmp_path / name).write_bytes(b"cbuiltins\neval\n(S'1+1'\ntR.")
    with pytest.raises(DataError, match=r"asks for builtins\.eval"):
        read_official("cifar10", tmp_path)


def test_npz_is_found_by_name_or_when_it_is_the_only_one(tmp_path: Path):
    (x_train, y_train), (x_test, y_test) = mini_arrays("fmnist")
    arrays = {"x_train": x_train[..., 0], "y_train": y_train[:, None], "x_test": x_test[..., 0], "y_test": y_test}
    np.savez_compressed(tmp_path / "subset.npz", **arrays)
    for place in (tmp_path, tmp_path / "subset.npz"):
        folds = read_npz("fmnist", place)
        assert folds is not None
        assert np.array_equal(folds[0][0], x_train)
        assert np.array_equal(folds[0][1], y_train)
    np.savez_compressed(tmp_path / "other.npz", **arrays)
    assert read_npz("fmnist", tmp_path) is None
    np.savez_compressed(tmp_path / "fmnist.npz", **arrays)
    assert read_npz("fmnist", tmp_path) is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, "no array y_test"),
        ({"y_train": np.zeros(3)}, "y_train holds float64"),
        ({"y_train": np.array([{}], dtype=object)}, "allow_pickle"),
    ],
)
def test_npz_of_another_form_is_refused(change, message, tmp_path: Path):
    arrays = {"x_train": np.zeros((3, 4, 4)), "y_train": np.zeros(3, int)}
    arrays |= {"x_test": np.zeros(1), "y_test": np.zeros(1, int)}
    kept = {key: value for key, value in (arrays | change).items() if value is not None}
    np.savez(tmp_path / "a.npz", **kept)
    with pytest.raises(DataError, match=rf"a\.npz.*{message}"):
        read_npz("svhn", tmp_path)


def test_a_truncated_npz_is_refused(tmp_path: Path):
    (x_train, y_train), (x_test, y_test) = mini_arrays("fmnist")
    np.savez_compressed(tmp_path / "a.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[: len(whole) // 2])
    with raises("data.damaged"):
        read_npz("fmnist", tmp_path)
