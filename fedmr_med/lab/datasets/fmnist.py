"""Fashion-MNIST (Xiao et al., 2017): 70,000 grey images of 28 pixels, in idx files."""

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedmr_med.data.datasets.base import Dataset, Protocol, RemoteFile
from fedmr_med.lab.datasets.archives import Folds, arrays, find_all, reading

_PLACE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}


def read_official(dataset: Dataset, place: Path) -> Folds | None:
    """Read the four idx files of a folder, gzipped or not; see :data:`fedmr_med.lab.datasets.archives.Official`."""
    paths = find_all(dataset, place)
    if not paths:
        return None
    train_images, train_labels, test_images, test_labels = (_read_idx(dataset, path) for path in paths)
    return (
        (train_images[..., np.newaxis], train_labels.astype(np.int64)),
        (test_images[..., np.newaxis], test_labels.astype(np.int64)),
    )


def _read_idx(dataset: Dataset, path: Path) -> npt.NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, type 8, number of axes, their big-endian lengths, the values."""
    with reading(path, dataset):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = stream.read()
        if len(content) < 4 or content[:3] != b"\x00\x00\x08":
            raise ValueError("it does not start as an idx file of bytes")
        header = 4 + 4 * content[3]
        shape = tuple(int(length) for length in np.frombuffer(content[4:header], dtype=">u4"))
        return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()


FMNIST = Dataset(
    name="fmnist",
    class_names=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag"),
        "Ankle boot",
    ),
    image_size=28,
    channels=1,
    read=arrays(read_official),
    files=tuple(RemoteFile(name, _PLACE + name, md5) for name, md5 in _MD5.items()),
    protocol=Protocol("resnet18", "plain", 100, split="P5C2"),
)
