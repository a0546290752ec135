"""FLamby's reader and ours give the same labels, order and pixels on real images."""

import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedmr_med.data.flamby_isic import PREPARED_FOLDER, SPLIT_FILE, load_flamby_isic, read_split
from fedmr_med.data.transforms import IsicTest
from tests.helpers.flamby_clients import CENTERS, PER_CENTER
from tests.helpers.pictures import flamby_site, isic_task


@pytest.mark.parametrize("center", CENTERS)
def test_both_readers_agree(flamby_strategies: ModuleType, prepared: Path, center: int) -> None:
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    from flamby.datasets.fed_isic2019.dataset import FedIsic2019

    task, site = isic_task(200), flamby_site(prepared, center, max_bad_fraction=1.0)
    ours = load_flamby_isic(site.data, task, site)  # type: ignore[arg-type]
    rows = read_split(prepared / SPLIT_FILE)[center]
    for train in (True, False):
        theirs = FedIsic2019(center=center, train=train, data_path=str(prepared))
        fold = [row for row in rows if row.fold == ("train" if train else "test")]
        assert [Path(path).name for path in theirs.image_paths] == [row.image for row in fold]
        assert theirs.targets.tolist() == [row.label for row in fold]
        there = [i for i, row in enumerate(fold) if (prepared / PREPARED_FOLDER / row.image).exists()]
        assert there == list(range(PER_CENTER))
        assert (ours.train if train else ours.test).labels.tolist() == [fold[i].label for i in there]
    transform = IsicTest(200)
    for index in range(PER_CENTER):
        image, label = theirs[index]
        assert np.array_equal(transform(ours.test[index], 0), image.numpy())
        assert int(label) == ours.test.labels[index]
