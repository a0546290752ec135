"""Small datasets in the official formats, for tests that have to go through the real readers.

``write_mini(name, folder)`` writes the same files that ``fedmr-med data download name`` gets, with few images.
"""

import gzip
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import SiteData
from fedmr_med.data.datasets import DATASETS
from fedmr_med.lab.datasets import cifar10, cifar100
from fedmr_med.lab.datasets.archives import CifarLayout
from fedmr_med.lab.datasets.shakespeare import CHARACTERS, TEXT_LENGTH

Fold = tuple[np.ndarray, np.ndarray]
ARRAYS = ("cifar10", "cifar100", "svhn", "fmnist")
"""The datasets whose images come as arrays of one size."""


def mini_arrays(name: str, per_class: int = 6, test_per_class: int = 2, seed: int = 0) -> tuple[Fold, Fold]:
    """Return (images, labels) of train and test: noise around a brightness that depends on the class."""
    info = DATASETS.get(name)
    generator = np.random.default_rng(seed)
    folds = []
    for count in (per_class, test_per_class):
        labels = generator.permutation(np.repeat(np.arange(info.num_classes), count))
        noise = generator.integers(-20, 21, (len(labels), info.image_size, info.image_size, info.channels))
        brightness = 30 + 195 * labels / (info.num_classes - 1)
        folds.append(((brightness[:, None, None, None] + noise).clip(0, 255).astype(np.uint8), labels))
    return folds[0], folds[1]


def write_mini(
    name: str, folder: Path, per_class: int = 6, test_per_class: int = 2, seed: int = 0
) -> tuple[Fold, Fold]:
    """Write a small ``name`` in its official format into ``folder`` and return what it holds."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test = mini_arrays(name, per_class, test_per_class, seed)
    if name in ("cifar10", "cifar100"):
        _write_cifar(folder, cifar10.LAYOUT if name == "cifar10" else cifar100.LAYOUT, train, test)
    elif name == "svhn":
        _write_svhn(folder / "train_32x32.mat", *train)
        _write_svhn(folder / "test_32x32.mat", *test)
    else:
        arrays = (train[0][..., 0], train[1], test[0][..., 0], test[1])
        for file, array in zip(DATASETS.get(name).files, arrays, strict=True):
            with gzip.open(folder / file.name, "wb") as stream:
                stream.write(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape))
                stream.write(array.astype(np.uint8).tobytes())
    return train, test


def write_mini_shakespeare(folder: Path, speakers: int = 6, samples: int = 10, seed: int = 0) -> None:
    """Write LEAF's train and test JSON, each in two files; a text is followed by its own first character."""
    generator = np.random.default_rng(seed)
    for fold, count in (("train", samples), ("test", 3)):
        (folder / fold).mkdir(parents=True, exist_ok=True)
        for part in range(2):
            users = [f"SPEAKER_{number}" for number in range(speakers) if number % 2 == part]
            data = {}
            for user in users:
                rows = generator.integers(0, len(CHARACTERS), (count, TEXT_LENGTH))
                texts = ["".join(CHARACTERS[i] for i in row) for row in rows]
                data[user] = {"x": texts, "y": [text[0] for text in texts]}
            content = {"users": users, "num_samples": [count] * len(users), "user_data": data}
            (folder / fold / f"all_data_{part}.json").write_text(json.dumps(content))


class Python2Pickler(pickle._Pickler):
    """Writes byte strings as Python 2 wrote ``str``, which is how the official CIFAR batches are made."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=2)

    def save_python2_string(self, value: bytes | str) -> None:
        raw = value.encode() if isinstance(value, str) else value
        self.write(b"T" + struct.pack("<i", len(raw)) + raw)

    dispatch = pickle._Pickler.dispatch | {bytes: save_python2_string, str: save_python2_string}


def cifar_batch(batch: dict[str, Any]) -> bytes:
    """Pickle one batch in the official form, down to numpy 1's module names."""
    stream = io.BytesIO()
    Python2Pickler(stream).dump(batch)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    """Write a tar.gz of the given members."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _write_cifar(folder: Path, layout: CifarLayout, train: Fold, test: Fold) -> None:
    pieces = zip(
        layout.train,
        np.array_split(train[0], len(layout.train)),
        np.array_split(train[1], len(layout.train)),
        strict=True,
    )
    members = {f"{layout.folder}/batches.meta": cifar_batch({"num_vis": 3072})}
    for name, images, labels in (*pieces, (layout.test, *test)):
        rows = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)
        content = {"data": rows, layout.label_key.decode(): [int(label) for label in labels]}
        members[f"{layout.folder}/{name}"] = cifar_batch(content)
    write_tar(folder / layout.archive, members)


def _write_svhn(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    from scipy.io import savemat

    digits = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": digits}, do_compression=True)


def task_of(name: str, split: str | None = "P5C2") -> TaskConfig:
    """Return the task of a dataset, without transform."""
    info = DATASETS.get(name)
    return TaskConfig(
        dataset=name, class_names=info.class_names, image_size=info.image_size, transform="none", split=split
    )


def read_dataset(name: str, root: Path) -> SiteData:
    """Read a whole dataset."""
    dataset = DATASETS.get(name)
    assert dataset.read is not None
    return dataset.read(dataset, root, task_of(name))


def write_manifest(folder: Path, name: str, per_class: int = 3) -> None:
    """Write grey pictures of every class with their manifest."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    lines = ["image,label,fold"]
    for number, label in enumerate(DATASETS.get(name).class_names):
        for copy in range(per_class + 1):
            grey = np.full((12, 16, 3), 10 * number + copy, np.uint8)
            Image.fromarray(grey).save(folder / f"{label}_{copy}.png")
            lines.append(f"{label}_{copy}.png,{label},{'train' if copy else 'test'}")
    (folder / "manifest.csv").write_text("\n".join(lines))
