"""The datasets: one record each, in one file each, found by name.

Those of benchmarks are in :mod:`fedmr_med.lab.datasets`. They come as a user's own do: a :class:`Dataset` behind an
entry point of the group ``fedmr_med.datasets``.
"""

from fedmr_med.data.datasets import isic2019
from fedmr_med.data.datasets.base import DATASETS, Dataset, Protocol, RemoteFile

__all__ = ["DATASETS", "Dataset", "Protocol", "RemoteFile", "isic2019"]
