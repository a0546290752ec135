"""What a dataset is to the rest of the package: one record that says all of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import Partitioned, SiteData
from fedmr_med.registry import Registry
from fedmr_med.sites import DataSource

DATA_VARIABLE = "FEDMR_MED_DATA"
"""Names the folder of all benchmark datasets, one folder each."""

Reader = Callable[["Dataset", Path, TaskConfig], SiteData]
"""Reads a whole dataset from its folder or file. Raises DataError where it is missing or damaged."""

ClientsReader = Callable[[Path, int, int], Partitioned]
"""Reads a dataset that comes partitioned, given its folder, the number of clients and the seed that draws them."""

SiteSource = Callable[[str, Path | None], DataSource]
"""Returns where a site's own data is, given its name and the folder that holds the data of all sites."""


@dataclass(frozen=True)
class RemoteFile:
    """A file to download, with the checksum its publisher gives."""

    name: str
    url: str
    md5: str


@dataclass(frozen=True)
class Protocol:
    """How a dataset is trained on unless a job says otherwise: as the paper does, where it says.

    Attributes:
        transform: name of a pair of train and test transforms.
        rounds: rounds with few clients.
        split: how the data is partitioned, the most class-disjoint way of the paper's; None where it comes partitioned.
        clients: how many clients there are where the split does not say.
        rounds_by_clients: rounds with many clients.
        settings: settings that differ from the paper's usual training, nested like ``fedmr.yaml``.
        demo: settings for the built-in demo of this dataset, nested in the same way.
    """

    model: str
    transform: str
    rounds: int
    split: str | None = None
    clients: int = 10
    rounds_by_clients: Mapping[int, int] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    demo: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dataset:
    """A dataset. Exactly one of ``read``, ``read_clients`` and ``site_source`` says where its samples come from.

    Attributes:
        name: jobs, commands and folders call it so.
        class_names: the classes, in the order of the labels.
        image_size: edge of the square the network sees, in pixels; a text's length, in characters.
        channels: 3 for RGB, 1 for grey.
        kind: ``images``, all of ``image_size``; ``photographs`` of any size; or ``texts``.
        read: reads the whole, which is then partitioned as a job's ``task.split`` says.
        read_clients: reads a dataset that comes partitioned.
        site_source: names the data of a site, where sites hold their own.
        sites: names of the sites that hold their own data.
        files: what ``fedmr-med data download`` gets.
        content: where nothing can be downloaded, what a user has to put into the dataset's folder.
        about: where nothing can be downloaded, a sentence that says where to get it.
        short_name: what names of jobs begin with; the name, unless given.
    """

    name: str
    class_names: tuple[str, ...]
    image_size: int
    protocol: Protocol
    channels: int = 3
    kind: Literal["images", "photographs", "texts"] = "images"
    read: Reader | None = None
    read_clients: ClientsReader | None = None
    site_source: SiteSource | None = None
    sites: tuple[str, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    content: str = "its files"
    about: str = ""
    short_name: str = ""

    def __post_init__(self) -> None:
        ways = (self.read, self.read_clients, self.site_source)
        if sum(way is not None for way in ways) != 1:
            raise ValueError(f"dataset {self.name}: give exactly one of read, read_clients and site_source")
        if (self.site_source is None) == bool(self.sites):
            raise ValueError(f"dataset {self.name}: site_source and sites go together")

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def has_demo(self) -> bool:
        """Whether generated pictures can stand in for it."""
        return bool(self.protocol.demo)

    @property
    def how_to_get(self) -> str:
        """A sentence for a user whose data is missing or damaged."""
        if self.files:
            return f"`fedmr-med data download {self.name} --root DIR` gets it; {DATA_VARIABLE} is then DIR."
        return (
            f"There is no `fedmr-med data download` for it: put {self.content} into DIR/{self.name}; "
            f"{DATA_VARIABLE} is then DIR."
        )


DATASETS: Registry[Dataset] = Registry(
    "dataset",
    group="fedmr_med.datasets",
    fits=lambda name, item: isinstance(item, Dataset) and item.name == name,
)


def register(dataset: Dataset) -> Dataset:
    """Make a dataset known by its name. A package of its own may use an entry point instead."""
    return DATASETS.add(dataset.name, dataset)
