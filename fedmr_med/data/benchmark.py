"""The paper's benchmark datasets: CIFAR-10, CIFAR-100, SVHN and Fashion-MNIST, dealt to clients.

They are read from their official files or from one .npz. Shakespeare has a file of its own,
:mod:`fedmr_med.data.shakespeare`. HyperKvasir and ODIR, folders of images with a table of labels, come through
the manifest source like any hospital's data.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedmr_med.config import TaskConfig
from fedmr_med.data.archives import Images, Labels, read_npz, read_official
from fedmr_med.data.base import ArrayFold, Fold, SiteData
from fedmr_med.data.partition import partition, thin
from fedmr_med.data.shakespeare import CHARACTERS, TEXT_LENGTH, deal_speakers
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.sites import BenchmarkSource, ManifestSource, SiteConfig

DATA_VARIABLE = "FEDMR_MED_DATA"
SHAKESPEARE = "shakespeare"


@dataclass(frozen=True)
class DatasetInfo:
    """What is fixed about a benchmark dataset.

    Attributes:
        class_names: the classes, in the order of the labels.
        image_size: edge of the square images, in pixels.
        channels: 3 for RGB, 1 for grey.
    """

    class_names: tuple[str, ...]
    image_size: int
    channels: int

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


@dataclass(frozen=True)
class Dataset:
    """A whole dataset in memory."""

    train: ArrayFold
    test: ArrayFold
    class_names: tuple[str, ...]


# fmt: off
DATASETS: dict[str, DatasetInfo] = {
    "cifar10": DatasetInfo(
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"), 32, 3),
    "cifar100": DatasetInfo(
        ("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
         "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
         "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
         "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
         "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
         "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
         "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
         "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
         "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger",
         "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman",
         "worm"), 32, 3),
    "svhn": DatasetInfo(tuple("0123456789"), 32, 3),
    "fmnist": DatasetInfo(
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        28, 1),
}
# Folders of images with a table of labels, read as manifests; image_size is what the network sees.
MANIFESTS: dict[str, DatasetInfo] = {
    "hyperkvasir": DatasetInfo(
        ("barretts", "barretts-short-segment", "bbps-0-1", "bbps-2-3", "cecum", "dyed-lifted-polyps",
         "dyed-resection-margins", "esophagitis-a", "esophagitis-b-d", "hemorrhoids", "ileum", "impacted-stool",
         "polyps", "pylorus", "retroflex-rectum", "retroflex-stomach", "ulcerative-colitis-grade-0-1",
         "ulcerative-colitis-grade-1", "ulcerative-colitis-grade-1-2", "ulcerative-colitis-grade-2",
         "ulcerative-colitis-grade-2-3", "ulcerative-colitis-grade-3", "z-line"), 200, 3),
    "odir": DatasetInfo(
        ("normal", "diabetes", "glaucoma", "cataract", "macular-degeneration", "hypertension", "myopia", "other"),
        200, 3),
}
# fmt: on
_TEXTS = DatasetInfo(tuple(CHARACTERS), TEXT_LENGTH, 1)


def dataset_info(name: str) -> DatasetInfo:
    """Return what is fixed about a dataset; a text's length stands for the image size.

    Raises:
        ConfigError: there is no such dataset.
    """
    known = DATASETS | MANIFESTS | {SHAKESPEARE: _TEXTS}
    if name not in known:
        raise ConfigError(f"{name!r} is not a benchmark dataset ({', '.join(known)}).")
    return known[name]


def load_benchmark(source: BenchmarkSource, task: TaskConfig, *, seed: int) -> SiteData:
    """Return one client's share of the training set and of the test set.

    The test set is common: client k of K holds every K-th of its rows, from row k, so that the clients' confusion
    matrices add up to that of the whole. All clients of a process share one copy of the data: their folds are views
    of it. Shakespeare comes dealt: each client is a speaker, and the test set is that of all the clients' speakers.

    Args:
        source: which client of how many, and where the data is.
        task: names the dataset and the split.
        seed: seed of the partition.

    Raises:
        ConfigError: the split cannot be dealt, or the task does not fit the dataset.
        DataError: the data is missing or damaged.
    """
    if source.client >= source.clients:
        raise ConfigError(f"data.client: {source.client} is not one of {source.clients} clients, counted from 0.")
    dealt = _dealt_by(source, task, seed)
    own = np.arange(source.client, len(dealt.test), source.clients) if source.holds_test else np.arange(0)
    test = Part(dealt.test, own)
    train, skipped = dealt.clients[source.client], dealt.skipped[source.client]
    return SiteData(train=train, test=test, class_names=task.class_names, skipped=skipped)


def load_test(source: BenchmarkSource, task: TaskConfig, *, seed: int) -> Fold:
    """Return the whole test set that the clients of a federation have in common.

    Raises:
        ConfigError, DataError: as :func:`load_benchmark`.
    """
    return _dealt_by(source, task, seed).test


@dataclass(frozen=True)
class Part:
    """Some rows of a fold, without a copy of its items."""

    fold: Fold
    rows: npt.NDArray[np.int64]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each item, (n,) int64."""
        return self.fold.labels[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint8]:
        return self.fold[int(self.rows[index])]


@dataclass(frozen=True)
class Dealt:
    """A dataset in the hands of its clients.

    Attributes:
        clients: the training data of each client.
        skipped: what each client left out because it could not be read, one line each.
        test: the common test set.
    """

    clients: tuple[Fold, ...]
    skipped: tuple[tuple[str, ...], ...]
    test: Fold


def _dealt_by(source: BenchmarkSource, task: TaskConfig, seed: int) -> Dealt:
    """Deal the task's dataset as source and task say."""
    root = data_root(task.dataset, source.root)
    if task.dataset == SHAKESPEARE:
        if task.split is not None or source.fraction != 1:
            raise ConfigError("task.split: Shakespeare is dealt by speaker; leave out task.split and data.fraction.")
        _check_classes(task, len(CHARACTERS))
        return _dealt_speakers(root, source.clients, seed)
    info = dataset_info(task.dataset)
    if task.split is None:
        raise ConfigError(f"task.split: {task.dataset} has to be dealt to the clients; give P5C2, dir0.5 or iid.")
    _check_classes(task, info.num_classes)
    if task.dataset in MANIFESTS:
        return _dealt_manifest(root, task, task.split, source.clients, seed, source.fraction)
    return _dealt(task.dataset, root, task.split, source.clients, seed, source.fraction)


def data_root(name: str, root: Path | None) -> Path:
    """Return ``root``, or else the dataset's folder in ``FEDMR_MED_DATA``.

    Raises:
        DataError: neither is given.
    """
    if root is not None:
        return root
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise DataError(f"No folder is given for {name}: set data.root or {DATA_VARIABLE}. {_how_to_get(name)}")
    return Path(folder) / name


def _how_to_get(name: str) -> str:
    if name in DATASETS:
        return f"`fedmr-med data download {name} --root DIR` gets it; {DATA_VARIABLE} is then DIR."
    what = "LEAF's train/ and test/" if name == SHAKESPEARE else "its images and a manifest.csv (image, label, fold)"
    return f"There is no `fedmr-med data download` for it: put {what} into DIR/{name}; {DATA_VARIABLE} is then DIR."


def _check_classes(task: TaskConfig, expected: int) -> None:
    if task.num_classes != expected:
        raise ConfigError(f"task.class_names: {task.dataset} has {expected} classes, not {task.num_classes}.")


@lru_cache(maxsize=1)
def _dealt(name: str, root: Path, split: str, clients: int, seed: int, fraction: float) -> Dealt:
    dataset = read_dataset(name, root)
    parts = _parts(dataset.train, split, clients, seed, fraction)
    # What the fraction leaves out is not held in memory.
    used = np.unique(np.concatenate(parts))
    train = ArrayFold(dataset.train.items[used], dataset.train.labels[used])
    folds = tuple(Part(train, np.searchsorted(used, part)) for part in parts)
    return Dealt(folds, ((),) * clients, _of_classes(dataset.test, train.labels))


@lru_cache(maxsize=1)
def _dealt_manifest(root: Path, task: TaskConfig, split: str, clients: int, seed: int, fraction: float) -> Dealt:
    from fedmr_med.data.manifest import load_manifest

    if not root.is_dir():
        raise DataError(f"{root} is not a folder. {_how_to_get(task.dataset)}")
    source = ManifestSource(source="manifest", root=root)
    data = load_manifest(source, task, SiteConfig(data=source))
    parts = _parts(data.train, split, clients, seed, fraction)
    # Nobody knows whose the unreadable images would have been; the first client reports them.
    skipped = (data.skipped, *((),) * (clients - 1))
    dealt = data.train.labels[np.concatenate(parts)]
    return Dealt(tuple(Part(data.train, part) for part in parts), skipped, _of_classes(data.test, dealt))


def _of_classes(test: Fold, dealt: npt.NDArray[np.int64]) -> Fold:
    """Leave out of the test set the classes that nobody could learn; none, unless the split asks for a subset."""
    known = np.isin(test.labels, dealt)
    return test if known.all() else Part(test, np.flatnonzero(known))


def _parts(train: Fold, split: str, clients: int, seed: int, fraction: float) -> list[npt.NDArray[np.int64]]:
    """Return each client's rows of the training set."""
    rows = thin(train.labels, fraction, seed)
    return [rows[part] for part in partition(train.labels[rows], split, clients, seed)]


def _dealt_speakers(root: Path, clients: int, seed: int) -> Dealt:
    speakers, test = deal_speakers(root, clients, seed)
    return Dealt(tuple(s.fold for s in speakers), tuple(s.skipped for s in speakers), test)


def read_dataset(name: str, root: Path) -> Dataset:
    """Read a dataset from its official files or from an .npz with x_train, y_train, x_test and y_test.

    Args:
        name: one of :data:`DATASETS`.
        root: a file, the folder that holds the files, or the folder above ``<name>/``.

    Raises:
        ConfigError: there is no such dataset.
        DataError: files are missing, damaged, or hold other images or labels than the dataset has.
    """
    info = dataset_info(name)
    for place in (root, root / name):
        folds = (read_official(name, place) or read_npz(name, place)) if place.exists() else None
        if folds is not None:
            train, test = (_checked(name, info, *fold, place) for fold in folds)
            return Dataset(train, test, info.class_names)
    raise DataError(
        f"{root} holds no {name}: neither its official files nor an .npz. "
        f"Get it with `fedmr-med data download {name} --root DIR`."
    )


def _checked(name: str, info: DatasetInfo, images: Images, labels: Labels, place: Path) -> ArrayFold:
    """Return a fold, or refuse other shapes, types and labels than the dataset has."""
    shape = (info.image_size, info.image_size, info.channels)
    again = f"Get it again with `fedmr-med data download {name} --root DIR`."
    if images.dtype != np.uint8 or images.shape[1:] != shape:
        raise DataError(f"{place}: {name} has uint8 images of {shape}, not {images.dtype} {images.shape[1:]}. {again}")
    if labels.shape != (len(images),) or len(labels) == 0:
        raise DataError(f"{place}: {len(images)} images do not fit labels of shape {labels.shape}. {again}")
    if labels.min() < 0 or labels.max() >= info.num_classes:
        raise DataError(
            f"{place}: {name} has labels 0 to {info.num_classes - 1}, not {labels.min()} to {labels.max()}. {again}"
        )
    return ArrayFold(images, labels)
