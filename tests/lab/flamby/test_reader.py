"""FLamby's reader and ours give the same labels, order and pixels on real images."""

import os
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedmr_med.data.flamby_isic import PREPARED_FOLDER, RAW_FOLDER, SPLIT_FILE, load_flamby_isic, read_split
from fedmr_med.data.prepare import prepare_isic
from fedmr_med.data.transforms import IsicTest
from tests.helpers.pictures import flamby_site, isic_task

CENTERS = (1, 2, 3, 4, 5)
PER_CENTER = 60


@pytest.fixture(scope="module")
def prepared(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few real images of each centre and fold, prepared by this package; FLamby's table beside them."""
    source, folder = shared_data / "fed_isic2019", tmp_path_factory.mktemp("isic")
    (folder / "raw" / RAW_FOLDER).mkdir(parents=True)
    centers = read_split(source / SPLIT_FILE)
    for center in CENTERS:
        for fold in ("train", "test"):
            for row in [row for row in centers[center] if row.fold == fold][:PER_CENTER]:
                shutil.copy(source / RAW_FOLDER / row.image, folder / "raw" / RAW_FOLDER)
    prepare_isic(folder / "raw", folder / "prepared", workers=1)
    shutil.copy(source / SPLIT_FILE, folder / "prepared")
    return folder / "prepared"


@pytest.mark.parametrize("center", CENTERS)
def test_both_readers_agree(flamby_strategies: ModuleType, prepared: Path, center: int) -> None:
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    pytest.importorskip("pandas")
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
