"""The datasets: one record each, in one file each, found by name.

A dataset of a user's own package is a :class:`Dataset` behind an entry point of the group ``fedmr_med.datasets``.
"""

from fedmr_med.data.datasets.base import DATASETS, Dataset, Protocol, RemoteFile

# In the order in which messages and listings name them.
from fedmr_med.data.datasets import (  # isort: skip
    fmnist,
    svhn,
    cifar10,
    cifar100,
    hyperkvasir,
    odir,
    shakespeare,
    isic2019,
)

__all__ = [
    "DATASETS",
    "Dataset",
    "Protocol",
    "RemoteFile",
    "cifar10",
    "cifar100",
    "fmnist",
    "hyperkvasir",
    "isic2019",
    "odir",
    "shakespeare",
    "svhn",
]
