"""SVHN (Netzer et al., 2011): digits of house numbers, colour images of 32 pixels, in MATLAB files."""

from pathlib import Path

import numpy as np

from fedmr_med.data.datasets.base import Dataset, Protocol, RemoteFile
from fedmr_med.lab.datasets.archives import Folds, Images, Labels, arrays, find_all, reading

_PLACE = "http://ufldl.stanford.edu/housenumbers/"
FILES = (
    RemoteFile("train_32x32.mat", f"{_PLACE}train_32x32.mat", md5="e26dedcc434d2e4c54c9b2d4a06d8373"),
    RemoteFile("test_32x32.mat", f"{_PLACE}test_32x32.mat", md5="eb5a983be6a315427106f1b164d9cef3"),
)


def read_official(dataset: Dataset, place: Path) -> Folds | None:
    """Read the two .mat files of a folder; see :data:`fedmr_med.lab.datasets.archives.Official`."""
    paths = find_all(dataset, place)
    return (_read_mat(dataset, paths[0]), _read_mat(dataset, paths[1])) if paths else None


def _read_mat(dataset: Dataset, path: Path) -> tuple[Images, Labels]:
    """Read one file: X (32, 32, 3, n), y (n, 1) with 10 for the digit 0."""
    from scipy.io import loadmat

    with reading(path, dataset):
        content = loadmat(path, variable_names=["X", "y"])
        labels = content["y"].reshape(-1).astype(np.int64)
        if labels.size == 0 or labels.min() < 1 or labels.max() > 10:
            raise ValueError("its labels are not 1 to 10")
        return np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2)), labels % 10


SVHN = Dataset(
    name="svhn",
    class_names=tuple("0123456789"),
    image_size=32,
    read=arrays(read_official),
    files=FILES,
    protocol=Protocol("resnet18", "plain", 100, split="P5C2"),
)
