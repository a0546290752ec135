"""One client's part of a benchmark dataset, cut as the job says; what the datasets are is in their records."""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import Fold, Partitioned, SiteData, joined
from fedmr_med.data.datasets import DATASETS, Dataset
from fedmr_med.data.datasets.base import DATA_VARIABLE
from fedmr_med.data.drawing import set_aside
from fedmr_med.data.partition import partition, thin
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.sites import BenchmarkSource, SiteConfig


def read_client(source: BenchmarkSource, task: TaskConfig, site: SiteConfig, seed: int) -> SiteData:
    """Read the data of a site whose ``data.source`` is ``benchmark``: an entry point of this package."""
    return load_benchmark(source, task, seed=seed)


def load_benchmark(source: BenchmarkSource, task: TaskConfig, *, seed: int) -> SiteData:
    """Return one client's share of the training set and of the test set.

    The test set is common: client k of K holds every K-th of its rows, from row k, so that the clients' confusion
    matrices add up to that of the whole. All clients of a process share one copy of the data: their folds are views
    of it. Of a dataset that comes partitioned each client is one of its parts, and the test set is that of all of them.

    Raises:
        ConfigError: there is no such dataset, the split cannot be made, or the task does not fit the dataset.
        DataError: the data is missing or damaged.
    """
    if source.client >= source.clients:
        why = f"{source.client} is not one of {source.clients} clients, counted from 0"
        raise _refused("data.client", why, "config.value")
    data = _partitioned_by(source, task, seed)
    own = np.arange(source.client, len(data.test), source.clients) if source.holds_test else np.arange(0)
    test = data.test.subset(own)
    train, skipped = data.clients[source.client], data.skipped[source.client]
    return SiteData(train=train, test=test, class_names=task.class_names, skipped=skipped)


def load_test(source: BenchmarkSource, task: TaskConfig, *, seed: int, held_out: float = 0.0) -> Fold:
    """Return the whole test set that the clients of a federation have in common, given one of them.

    With ``held_out``, a share of each client's training data, it is the held-out data of all clients. Raises what
    :func:`load_benchmark` does.
    """
    data = _partitioned_by(source, task, seed)
    return joined([set_aside(fold, held_out, seed)[1] for fold in data.clients]) if held_out else data.test


def data_root(dataset: Dataset, root: Path | None) -> Path:
    """Return ``root``, or else the dataset's folder in ``FEDMR_MED_DATA``.

    Raises:
        DataError: neither is given.
    """
    if root is not None:
        return root
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        why = f"No folder is given for {dataset.name}: set data.root or {DATA_VARIABLE}. {dataset.how_to_get}"
        raise DataError(why, code="data.missing", key="data.root")
    return Path(folder) / dataset.name


def _partitioned_by(source: BenchmarkSource, task: TaskConfig, seed: int) -> Partitioned:
    """Partition the task's dataset as source and task say."""
    dataset = DATASETS.get(task.dataset, "task.dataset")
    if dataset.sites:
        why = f"the sites of {dataset.name} hold their own data; it is no benchmark"
        raise _refused("data.source", why, "config.conflict")
    if dataset.read_clients is not None and (task.split is not None or source.fraction != 1):
        why = f"{dataset.name} comes partitioned; leave out task.split and data.fraction"
        raise _refused("task.split", why, "config.conflict")
    if task.num_classes != dataset.num_classes:
        why = f"{dataset.name} has {dataset.num_classes} classes, not {task.num_classes}"
        raise _refused("task.class_names", why, "data.class-names")
    return _partitioned(data_root(dataset, source.root), task, source.clients, seed, source.fraction)


@lru_cache(maxsize=1)
def _partitioned(root: Path, task: TaskConfig, clients: int, seed: int, fraction: float) -> Partitioned:
    """Read and partition a dataset: once for all clients of a process, and for all rounds of a run."""
    dataset = DATASETS.get(task.dataset)
    if dataset.read_clients is not None:
        return dataset.read_clients(root, clients, seed)
    if dataset.read is None or task.split is None:
        why = f"{dataset.name} has to be partitioned; give P5C2, dir0.5 or iid"
        raise _refused("task.split", why, "config.missing")
    data = dataset.read(dataset, root, task)
    rows = thin(data.train.labels, fraction, seed)
    parts = [rows[part] for part in partition(data.train.labels[rows], task.split, clients, seed)]
    used = np.unique(np.concatenate(parts))
    # Classes that nobody could learn are left out of the test set; there are some where the split asks for a subset.
    train, known = data.train, np.isin(data.test.labels, data.train.labels[used])
    test = data.test if known.all() else data.test.subset(np.flatnonzero(known))
    if isinstance(train.items, np.ndarray):
        # What the fraction leaves out is not held in memory.
        part = train.subset(used)
        train = Fold(train.items[part.rows], part.labels, part.groups)
        parts = [np.searchsorted(used, part) for part in parts]
    # Nobody knows whose the unreadable items would have been; the first client reports them.
    skipped = (data.skipped, *((),) * (clients - 1))
    return Partitioned(tuple(train.subset(part) for part in parts), skipped, test)


def _refused(key: str, why: str, code: str) -> ConfigError:
    return ConfigError(f"{key}: {why}.", code=code, key=key)
