"""FLamby's classification datasets by FLamby's own classes, one centre each."""

import copy
from dataclasses import dataclass
from typing import Any

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import SiteData
from fedmr_med.data.datasets.isic2019 import ISIC2019
from fedmr_med.data.labels import labels_of
from fedmr_med.data.own import MapStyle, OwnData, from_torch
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.lab.flamby.checkout import find_dataset, older_numpy
from fedmr_med.registry import check_known
from fedmr_med.schema import brief
from fedmr_med.sites import FlambySource, SiteConfig


@dataclass(frozen=True)
class FlambySet:
    """One of FLamby's classification datasets.

    Attributes:
        class_names: what its labels 0, 1, ... mean.
        metric: what FLamby scores models by.
        linear: whether FLamby's ``Baseline`` is one linear layer, whose feature is a patient's raw attributes.
    """

    class_names: tuple[str, ...]
    centers: int
    metric: str
    linear: bool = False


DATASETS = {
    "fed_isic2019": FlambySet(ISIC2019.class_names, centers=6, metric="balanced_accuracy"),
    "fed_heart_disease": FlambySet(("healthy", "disease"), centers=4, metric="accuracy", linear=True),
    "fed_camelyon16": FlambySet(("normal", "tumour"), centers=2, metric="auc"),
}
"""FLamby's classification datasets by name."""

_OTHER = {
    "fed_tcga_brca": "predicts survival",
    **dict.fromkeys(("fed_ixi", "fed_kits19", "fed_lidc_idri"), "is segmentation"),
    "fed_synthetic": "has several labels per sample",
}


def known_set(dataset: str) -> FlambySet:
    """Return one of FLamby's datasets.

    Raises:
        ConfigError: there is no such dataset, or it is not about classes.
    """
    if dataset in _OTHER:
        why = f"{dataset} {_OTHER[dataset]}; this toolkit is for classification: {', '.join(DATASETS)}."
        raise ConfigError(why, code="data.not-classification")
    check_known(dataset, DATASETS, "dataset")
    return DATASETS[dataset]


@dataclass(frozen=True)
class _Labelled:
    """A dataset of FLamby's with whole numbers for labels, which are float vectors of length one in some of them."""

    dataset: MapStyle
    targets: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[index][0], self.targets[index]


def load_flamby(source: FlambySource, task: TaskConfig, site: SiteConfig, seed: int) -> SiteData:
    """Return the two folds of one centre, as FLamby makes them; prototypes are made without augmentation.

    An entry point of this package: the reader of ``data.source: flamby``. FLamby fixes the folds, whatever the seed.

    Raises:
        ConfigError: FLamby is not there, or the dataset is not about classes.
        DataError: FLamby cannot read it, or a label is no class.
    """
    names = known_set(source.dataset).class_names
    module = find_dataset(source.flamby, source.dataset)
    path = None if source.root is None else str(source.root)
    try:
        with older_numpy():
            train, test = (module.FedClass(center=source.center, train=fold, data_path=path) for fold in (True, False))
    except Exception as e:  # whatever FLamby raises where data is missing
        raise DataError(
            f"FLamby cannot read centre {source.center} of {source.dataset}: {brief(repr(e))}.", code="data.unreadable"
        ) from e
    plain = None
    if hasattr(train, "augmentations") and hasattr(test, "augmentations"):
        plain = copy.copy(train)
        plain.augmentations = test.augmentations
    labels = _whole(train, "train")
    own = OwnData(
        train=_Labelled(train, labels),
        test=_Labelled(test, _whole(test, "test")),
        class_names=names,
        plain=None if plain is None else _Labelled(plain, labels),
    )
    return from_torch(own, task, labels_of(site, task.class_names))


def _whole(dataset: Any, fold: str) -> tuple[int, ...]:
    """Return the labels of a fold as whole numbers, from the list of them where there is one."""
    listed = next((getattr(dataset, name) for name in ("targets", "labels") if hasattr(dataset, name)), None)
    if listed is None or len(listed) != len(dataset):
        listed = [dataset[index][1] for index in range(len(dataset))]
    numbers = [float(label) for label in listed]
    for index, number in enumerate(numbers):
        if not number.is_integer():
            raise DataError(f"item {index} of the {fold} fold: label {number} is no class.", code="data.label")
    return tuple(map(int, numbers))
