"""The records of the datasets."""

from pathlib import Path

import pytest

from fedmr_med import models
from fedmr_med.data.base import SiteData
from fedmr_med.data.datasets import DATASETS, Dataset, Protocol
from fedmr_med.data.transforms import TRANSFORMS

NAMES = ("fmnist", "svhn", "cifar10", "cifar100", "hyperkvasir", "odir", "shakespeare", "isic2019")
PROTOCOL = Protocol("small_cnn", "plain", 3, split="iid")


def read(dataset: Dataset, root: Path, task: object) -> SiteData:
    raise NotImplementedError


def test_the_eight_datasets_are_there_with_their_classes_and_sizes() -> None:
    records = [DATASETS.get(name) for name in NAMES]
    assert set(NAMES) <= set(DATASETS.names())
    assert [(record.num_classes, record.image_size, record.channels) for record in records] == [
        (10, 28, 1),
        (10, 32, 3),
        (10, 32, 3),
        (100, 32, 3),
        (23, 200, 3),
        (8, 200, 3),
        (80, 80, 1),
        (8, 200, 3),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_complete(name: str) -> None:
    record = DATASETS.get(name)
    assert record.name == name
    assert len(set(record.class_names)) == record.num_classes
    assert record.protocol.model in models.available()
    assert record.protocol.transform in TRANSFORMS
    assert (record.protocol.split is None) == (record.read is None), "what comes partitioned has no split"
    assert record.files or record.about, "a user has to learn where to get it"


def test_a_record_says_in_one_way_where_its_samples_come_from() -> None:
    assert Dataset("mine", ("a", "b"), 8, PROTOCOL, read=read).how_to_get.count("DIR/mine") == 1
    with pytest.raises(ValueError, match="exactly one of read"):
        Dataset("mine", ("a", "b"), 8, PROTOCOL)
    with pytest.raises(ValueError, match="site_source and sites go together"):
        Dataset("mine", ("a", "b"), 8, PROTOCOL, read=read, sites=("x",))
