"""Readers of image datasets that fit into memory: official files in formats that several share, and .npz.

Nothing is unpacked to disk and nothing in a file can run: pickles are read with an unpickler that knows numpy
arrays and plain values only.
"""

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.datasets.base import Dataset, Reader, RemoteFile
from fedmr_med.errors import DataError, FedMRError

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
# Images (n, height, width, channels) and labels (n,) of the training set, then of the test set.
Folds = tuple[tuple[Images, Labels], tuple[Images, Labels]]


@dataclass(frozen=True)
class CifarLayout:
    """Names in an official CIFAR archive: the archive, the folder in it, its batches and the key of the labels."""

    archive: str
    md5: str
    folder: str
    train: tuple[str, ...]
    test: str
    label_key: bytes

    @property
    def files(self) -> tuple[RemoteFile]:
        """What to download."""
        return (RemoteFile(self.archive, f"https://www.cs.toronto.edu/~kriz/{self.archive}", self.md5),)


Official = Callable[[Dataset, Path], Folds | None]
"""Reads a dataset's official files from a place; None where there are none. Raises DataError where one is damaged."""


def arrays(official: Official | None = None) -> Reader:
    """Return the reader of a dataset whose images have one size: ``official`` files, or an .npz with the same arrays.

    The reader looks in a file, in the folder that holds the files, and in ``<name>/`` below it. It raises DataError
    where files are missing, damaged, or hold other images or labels than the dataset has.
    """

    def read(dataset: Dataset, root: Path, task: TaskConfig) -> SiteData:
        for place in (root, root / dataset.name):
            if not place.exists():
                continue
            folds = (official and official(dataset, place)) or read_npz(dataset, place)
            if folds is not None:
                train, test = (_checked(dataset, *fold, place) for fold in folds)
                return SiteData(train=train, test=test, class_names=dataset.class_names)
        raise DataError(
            f"{root} holds no {dataset.name}: neither its official files nor an .npz. {dataset.how_to_get}",
            code="data.missing",
        )

    return read


def _checked(dataset: Dataset, images: Images, labels: Labels, place: Path) -> Fold:
    """Return a fold, or refuse other shapes, types and labels than the dataset has."""
    shape, last = (dataset.image_size, dataset.image_size, dataset.channels), dataset.num_classes - 1
    code, key = "data.damaged", "labels"
    if images.dtype != np.uint8 or images.shape[1:] != shape:
        key, problem = "images", f"{dataset.name} has uint8 images of {shape}, not {images.dtype} {images.shape[1:]}"
    elif labels.shape != (len(images),) or len(labels) == 0:
        problem = f"{len(images)} images do not fit labels of shape {labels.shape}"
    elif labels.min() < 0 or labels.max() > last:
        code, problem = "data.label", f"{dataset.name} has labels 0 to {last}, not {labels.min()} to {labels.max()}"
    else:
        return Fold(images, labels)
    raise DataError(f"{place}: {problem}. Get it again: {dataset.how_to_get}", code=code, key=key)


def read_npz(dataset: Dataset, place: Path) -> Folds | None:
    """Read ``x_train``, ``y_train``, ``x_test`` and ``y_test``; grey images may lack the channel axis.

    The place is the file, or a folder with ``<name>.npz`` or just one .npz; None where there is no such file.

    Raises:
        DataError: the file is damaged or lacks an array.
    """
    found = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    named = [path for path in found if path.stem == dataset.name] or found
    if len(named) != 1 or named[0].suffix != ".npz":
        return None
    with reading(named[0], dataset), np.load(named[0], allow_pickle=False) as content:
        return npz_fold(content, "x_train", "y_train"), npz_fold(content, "x_test", "y_test")


@contextmanager
def reading(path: Path, dataset: Dataset) -> Iterator[None]:
    """Turn any failure to parse ``path`` into a DataError that names it and the way to get it again."""
    try:
        yield
    except FedMRError:
        raise
    except Exception as e:
        # tarfile, gzip, zlib, pickle, zipfile and scipy.io have no common error, and damage shows up in any of them.
        reason = (str(e).strip() or type(e).__name__).splitlines()[0].rstrip(".")
        raise DataError(
            f"{path} is damaged or not in the format of {dataset.name} ({reason}). Get it again: {dataset.how_to_get}",
            code="data.damaged",
        ) from e


def cifar(layout: CifarLayout) -> Official:
    """Return the reader of an official CIFAR archive, of the folder it is in, or of what was extracted from it."""

    def read(dataset: Dataset, place: Path) -> Folds | None:
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

    return read


def _read_tar(path: Path, folder: str, names: Iterable[str]) -> dict[str, bytes]:
    """Return files of a folder in a tar.gz, in one pass: going back in a gzip stream would decompress it again."""
    wanted = {f"{folder}/{name}": name for name in names}
    arrays = {}
    with gzip.open(path) as unzipped:
        with tarfile.open(fileobj=unzipped, mode="r|") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.name in wanted else None
                if stream is not None:
                    arrays[wanted[member.name]] = stream.read()
        unzipped.read()  # gzip checks its checksum at the end of the file only
    missing = [member for member, name in wanted.items() if name not in arrays]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    return arrays


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


def npz_fold(content: Any, images_key: str, labels_key: str) -> tuple[Images, Labels]:
    """Return one fold of an open .npz; grey images may lack the channel axis, labels may have one of length 1.

    Raises:
        ValueError: an array is missing, or the labels are not integers.
    """
    for key in (images_key, labels_key):
        if key not in content:
            raise ValueError(f"it has no array {key}")
    images, labels = content[images_key], content[labels_key]
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{labels_key} holds {labels.dtype}, not integers")
    images = images[..., np.newaxis] if images.ndim == 3 else images
    return images, labels.reshape(-1).astype(np.int64)


def find_all(dataset: Dataset, folder: Path) -> list[Path]:
    """Return the dataset's files, gzipped or not; an empty list where there is none of them.

    Raises:
        DataError: some of them are missing.
    """
    paths = []
    for file in dataset.files:
        candidates = (folder / file.name, folder / file.name.removesuffix(".gz"))
        paths.append(next((path for path in candidates if path.is_file()), candidates[0]))
    missing = [path for path in paths if not path.is_file()]
    if missing and len(missing) < len(paths):
        why = f"{missing[0]} is missing beside the other files of {dataset.name}. {dataset.how_to_get}"
        raise DataError(why, code="data.missing")
    return [] if missing else paths
