"""Readers of the benchmark datasets' official files, and of the same data as one .npz.

Nothing is unpacked to disk and nothing in a file can run: pickles are read with an unpickler that knows numpy
arrays and plain values only. What the images and labels must be is checked in :mod:`fedmr_med.data.benchmark`.
"""

import gzip
import io
import pickle
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import DataError, FedMRError

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
# Images (n, height, width, channels) and labels (n,) of the training set, then of the test set.
Folds = tuple[tuple[Images, Labels], tuple[Images, Labels]]


@dataclass(frozen=True)
class CifarLayout:
    """Names in an official CIFAR archive: the archive, the folder in it, its batches and the key of the labels."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    label_key: bytes


CIFAR10 = CifarLayout(
    "cifar-10-python.tar.gz",
    "cifar-10-batches-py",
    tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test_batch",
    b"labels",
)
CIFAR100 = CifarLayout("cifar-100-python.tar.gz", "cifar-100-python", ("train",), "test", b"fine_labels")
SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")
FMNIST_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def read_official(dataset: str, place: Path) -> Folds | None:
    """Read a dataset from its official files.

    Args:
        dataset: cifar10, cifar100, svhn or fmnist.
        place: the folder that holds them; for CIFAR also the archive or the extracted folder itself.

    Returns:
        Training and test set, or None where there is no such file.

    Raises:
        DataError: a file is damaged, or some files are there and others are not.
    """
    if dataset in ("cifar10", "cifar100"):
        return _read_cifar(dataset, place, CIFAR10 if dataset == "cifar10" else CIFAR100)
    if dataset == "svhn":
        paths = _find_all(dataset, place, SVHN_FILES)
        return (_read_svhn(paths[0]), _read_svhn(paths[1])) if paths else None
    paths = _find_all(dataset, place, FMNIST_FILES)
    return (_read_idx_pair(dataset, *paths[:2]), _read_idx_pair(dataset, *paths[2:])) if paths else None


def read_npz(dataset: str, place: Path) -> Folds | None:
    """Read ``x_train``, ``y_train``, ``x_test`` and ``y_test``; grey images may lack the channel axis.

    Args:
        dataset: the name to look for and to put into messages.
        place: the file; or a folder with ``<dataset>.npz`` or just one .npz.

    Returns:
        Training and test set, or None where there is no such file.

    Raises:
        DataError: the file is damaged or lacks an array.
    """
    path = place
    if place.is_dir():
        candidates = sorted(place.glob("*.npz"))
        candidates = [path for path in candidates if path.stem == dataset] or candidates
        if len(candidates) != 1:
            return None
        path = candidates[0]
    elif place.suffix != ".npz":
        return None
    with reading(path, dataset), np.load(path, allow_pickle=False) as content:
        return _npz_fold(content, "train"), _npz_fold(content, "test")


@contextmanager
def reading(path: Path, dataset: str) -> Iterator[None]:
    """Turn any failure to parse ``path`` into a DataError that names it and the way to get it again."""
    try:
        yield
    except FedMRError:
        raise
    except Exception as e:
        # tarfile, gzip, zlib, pickle, zipfile and scipy.io have no common error, and damage shows up in any of them.
        reason = (str(e).strip() or type(e).__name__).splitlines()[0].rstrip(".")
        raise DataError(
            f"{path} is damaged or not in the format of {dataset} ({reason}). "
            f"Get it again with `fedmr-med data download {dataset} --root DIR`."
        ) from e


def _read_cifar(dataset: str, place: Path, layout: CifarLayout) -> Folds | None:
    extracted = (place / layout.test).is_file()
    candidates = [place] if place.is_file() or extracted else [place / layout.archive, place / layout.folder]
    path = next((path for path in candidates if path.exists() and path.suffix != ".npz"), None)
    if path is None:
        return None
    names = (*layout.train, layout.test)
    with reading(path, dataset):
        if path.is_dir():
            contents = {name: (path / name).read_bytes() for name in names}
        else:
            contents = _read_tar(path, layout.folder, names)
        batches = [_cifar_batch(contents[name], layout.label_key) for name in names]
    images, labels = zip(*batches[:-1], strict=True)
    return (np.concatenate(images), np.concatenate(labels)), batches[-1]


def _read_tar(path: Path, folder: str, names: Iterable[str]) -> dict[str, bytes]:
    """Return files of a folder in a tar.gz, in one pass: going back in a gzip stream would decompress it again."""
    wanted = {f"{folder}/{name}": name for name in names}
    found = {}
    with gzip.open(path) as unzipped:
        with tarfile.open(fileobj=unzipped, mode="r|") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.name in wanted else None
                if stream is not None:
                    found[wanted[member.name]] = stream.read()
        unzipped.read()  # gzip checks its checksum at the end of the file only
    missing = [member for member, name in wanted.items() if name not in found]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    return found


def _cifar_batch(content: bytes, label_key: bytes) -> tuple[Images, Labels]:
    """Return one pickled batch: rows of 3072 bytes, channel by channel, and a list of labels."""
    batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    rows = batch[b"data"]
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3 * 32 * 32:
        raise ValueError(f"its images are {rows.dtype} of shape {rows.shape}")
    images = np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return images, np.asarray(batch[label_key], dtype=np.int64)


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler for plain values and numpy arrays. Any other class or function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the three names that a pickled array needs."""
        # The official files were written with numpy 1; numpy 2 has moved the function.
        from numpy._core.multiarray import _reconstruct

        allowed = {
            ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused")
        return allowed[module, name]


def _read_svhn(path: Path) -> tuple[Images, Labels]:
    """Read one .mat file: X (32, 32, 3, n), y (n, 1) with 10 for the digit 0."""
    from scipy.io import loadmat

    with reading(path, "svhn"):
        content = loadmat(path, variable_names=["X", "y"])
        labels = content["y"].reshape(-1).astype(np.int64)
        if labels.size == 0 or labels.min() < 1 or labels.max() > 10:
            raise ValueError("its labels are not 1 to 10")
        return np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2)), labels % 10


def _read_idx_pair(dataset: str, images: Path, labels: Path) -> tuple[Images, Labels]:
    """Read the images and labels of one fold; the images get a channel axis."""
    return _read_idx(dataset, images)[..., np.newaxis], _read_idx(dataset, labels).astype(np.int64)


def _read_idx(dataset: str, path: Path) -> npt.NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, type 8, number of axes, their big-endian lengths, the values."""
    with reading(path, dataset):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = stream.read()
        if len(content) < 4 or content[:3] != b"\x00\x00\x08":
            raise ValueError("it does not start as an idx file of bytes")
        header = 4 + 4 * content[3]
        shape = tuple(int(length) for length in np.frombuffer(content[4:header], dtype=">u4"))
        return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()


def _npz_fold(content: Any, fold: str) -> tuple[Images, Labels]:
    for key in (f"x_{fold}", f"y_{fold}"):
        if key not in content:
            raise ValueError(f"it has no array {key}")
    images, labels = content[f"x_{fold}"], content[f"y_{fold}"]
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"y_{fold} holds {labels.dtype}, not integers")
    images = images[..., np.newaxis] if images.ndim == 3 else images
    return images, labels.reshape(-1).astype(np.int64)


def _find_all(dataset: str, folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the files, gzipped or not; an empty list where there is none of them.

    Raises:
        DataError: some of them are missing.
    """
    paths = []
    for name in names:
        candidates = (folder / name, folder / name.removesuffix(".gz"))
        paths.append(next((path for path in candidates if path.is_file()), candidates[0]))
    missing = [path for path in paths if not path.is_file()]
    if missing and len(missing) < len(paths):
        raise DataError(
            f"{missing[0]} is missing beside the other files of {dataset}. "
            f"Get it with `fedmr-med data download {dataset} --root DIR`."
        )
    return [] if missing else paths
