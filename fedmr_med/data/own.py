"""A site's own data as torch users have it: any map-style ``Dataset``, from a factory that the site names.

The factory is registered by an entry point of the group ``fedmr_med.sources``, or named by its dotted path: whose code
runs is the site's own decision, as ``site.yaml`` is its own file. It is called with the task and the options of
``site.yaml``, and returns :class:`OwnData`::

    def lung_nodules(task, *, root):
        return OwnData(train=Nodules(root, "train"), test=Nodules(root, "test"), class_names=("benign", "malignant"))
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Subset

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.folds import check_groups
from fedmr_med.data.labels import labels_of
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.registry import Registry
from fedmr_med.schema import brief
from fedmr_med.sites import DatasetSource, SiteConfig

SOURCES: Registry[Any] = Registry(
    "data source", group="fedmr_med.sources", fits=lambda name, item: callable(item), dotted=callable
)
_UNCHANGED = "none"


class MapStyle(Protocol):
    """A map-style torch dataset: item ``i`` is ``(x, label)``.

    x is an image, (height, width, channels) uint8 or a PIL image, which the task's transform crops and normalises; or
    any other array or tensor, for which ``task.transform`` is ``none``. The label is a whole number or a class's name.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


@dataclass(frozen=True)
class OwnData:
    """What a factory returns.

    Attributes:
        train, test: the two folds. Labels are read from ``targets`` or ``labels`` of a dataset, else from its items.
        class_names: what the numbers in the labels mean; None counts as the task does.
        train_groups, test_groups: the patient or lesion of each item, "" if not known.
        plain: the train fold without augmentation, item by item, where ``train`` augments; prototypes are made of it.
    """

    train: MapStyle
    test: MapStyle
    class_names: tuple[str, ...] | None = None
    train_groups: Sequence[str] = ()
    test_groups: Sequence[str] = ()
    plain: MapStyle | None = None


@dataclass(frozen=True)
class DatasetItems:
    """The items of a torch dataset without their labels."""

    dataset: MapStyle

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> npt.NDArray[Any]:
        return self.seeded(number, 0)

    def seeded(self, number: int, seed: int) -> npt.NDArray[Any]:
        """Return an item, random by ``seed`` alone; raise DataError if the dataset raises or it is no array."""
        try:
            with _randomness(seed):
                return _array(self.dataset[number][0])
        except Exception as e:  # whatever the dataset's own code raises
            raise DataError(
                f"item {number} of {_name(self.dataset)} cannot be read: {brief(repr(e))}.", code="data.unreadable"
            ) from e


def load_own(source: DatasetSource, task: TaskConfig, site: SiteConfig) -> SiteData:
    """Return the two folds of a site's own dataset.

    Raises:
        ConfigError: there is no such factory, or it does not take the options.
        DataError: what it returns cannot be used.
    """
    factory = SOURCES.get(source.factory, "data.factory")
    try:
        own = factory(task, **source.options)
    except TypeError as e:
        raise ConfigError(
            f"data.options: {source.factory} cannot be called: {brief(e)}.", code="data.factory", key="data.options"
        ) from e
    if not isinstance(own, OwnData):
        raise DataError(
            f"data.factory: {source.factory} returns a {type(own).__name__}, not OwnData.",
            code="data.factory",
            key="data.factory",
        )
    return from_torch(own, task, labels_of(site, task.class_names), shared_groups=source.allow_shared_groups)


def from_torch(
    own: OwnData, task: TaskConfig, labels: Mapping[str, int] | None = None, *, shared_groups: bool = False
) -> SiteData:
    """Return torch datasets as the data of a site, or as a whole benchmark dataset.

    Args:
        task: the classes, and the transform that images go through.
        labels: the class that each label, as a text, stands for; None takes names and numbers as the task has them.
        shared_groups: accept a patient or lesion in both folds.

    Raises:
        DataError: a label, an item, or a group in both folds.
    """
    if labels is None:
        names = {name: number for number, name in enumerate(task.class_names)}
        labels = {str(number): number for number in names.values()} | names
    for groups, dataset in ((own.train_groups, own.train), (own.test_groups, own.test)):
        if len(groups) not in (0, len(dataset)):
            raise DataError(
                f"{_name(dataset)} has {len(groups)} groups for {len(dataset)} items.", code="data.item", key="groups"
            )
    check_groups(_name(own.train), ({*own.train_groups} & {*own.test_groups}) - {""}, shared_groups)
    train, test = (
        _fold(dataset, own.class_names, labels, task, groups)
        for dataset, groups in ((own.train, own.train_groups), (own.test, own.test_groups))
    )
    if not len(train):
        raise DataError(f"{_name(own.train)} has no item in the train fold.", code="data.empty")
    plain = None if own.plain is None else Fold(DatasetItems(own.plain), train.labels, train.groups)
    if own.plain is not None and len(own.plain) != len(train):
        raise DataError(
            f"{_name(own.plain)} has {len(own.plain)} items without augmentation, the train fold {len(train)}.",
            code="data.item",
            key="plain",
        )
    return SiteData(train=train, test=test, class_names=task.class_names, plain=plain)


def _fold(
    dataset: MapStyle,
    class_names: tuple[str, ...] | None,
    labels: Mapping[str, int],
    task: TaskConfig,
    groups: Sequence[str],
) -> Fold:
    numbers = np.empty(len(dataset), dtype=np.int64)
    for index, label in enumerate(_raw_labels(dataset)):
        text = _text(label, class_names)
        if text is None or text not in labels:
            said = repr(label) if text is None else repr(text)
            known = ", ".join(sorted(labels))
            raise DataError(f"item {index} of {_name(dataset)}: label {said} is not one of {known}.", code="data.label")
        numbers[index] = labels[text]
    fold = Fold(DatasetItems(dataset), numbers, tuple(groups) if any(groups) else None)
    if len(fold):
        _check_item(fold[0], _name(dataset), task)
    return fold


def _text(label: Any, class_names: tuple[str, ...] | None) -> str | None:
    """Return a label as a text: a class's name or a whole number; None for anything else."""
    value = label.item() if getattr(label, "ndim", None) == 0 else label
    if isinstance(value, str):
        return value
    if type(value) is not int:
        return None
    if class_names is None:
        return str(value)
    return class_names[value] if 0 <= value < len(class_names) else None


def _raw_labels(dataset: MapStyle) -> Iterator[Any]:
    """Return the label of each item, without reading the items where the dataset has a list of them."""
    if isinstance(dataset, Subset):
        whole = list(_raw_labels(cast(MapStyle, dataset.dataset)))
        return (whole[index] for index in dataset.indices)
    for name in ("targets", "labels"):
        listed = getattr(dataset, name, None)
        if listed is not None and np.ndim(listed) == 1 and len(listed) == len(dataset):
            return iter(listed)
    return (dataset[index][1] for index in range(len(dataset)))


def _check_item(item: npt.NDArray[Any], dataset: str, task: TaskConfig) -> None:
    """Refuse items that the task's transform cannot take, by the first one."""
    is_image = item.dtype == np.uint8 and item.ndim == 3
    if task.transform != _UNCHANGED and not (is_image and item.shape[2] == task.channels):
        raise DataError(
            f"item 0 of {dataset} is {item.dtype} of shape {item.shape}, and task.transform "
            f"{task.transform} is for images, (height, width, {task.channels}) uint8. Items that are ready for the "
            f"network need task.transform: {_UNCHANGED}.",
            code="data.item",
            key="task.transform",
        )
    if item.dtype.kind == "f" and not np.isfinite(item).all():
        raise DataError(f"item 0 of {dataset} has values that are NaN or infinite.", code="data.not-finite")


def _array(item: Any) -> npt.NDArray[Any]:
    """Return an image, array or tensor as an array; images have three dimensions, numbers 32 bits."""
    array = item.detach().cpu().numpy() if isinstance(item, torch.Tensor) else np.asarray(item)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"a {type(item).__name__} is no image, array or tensor")
    if array.dtype == np.uint8 and array.ndim == 2:
        array = array[:, :, None]
    return array.astype(np.float32) if array.dtype.kind == "f" else array


@contextmanager
def _randomness(seed: int) -> Iterator[None]:
    """Start the global generators of Python, numpy and torch (on the CPU) from a seed, and put them back afterwards."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    # torch.manual_seed also queues a call for every kind of device, with a stack trace: longer than many items take.
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


def _name(dataset: MapStyle) -> str:
    return type(dataset).__name__
