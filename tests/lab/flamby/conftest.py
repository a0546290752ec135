"""FLamby for the tests that compare with it: a checkout named by FEDMR_MED_FLAMBY, or importable; else they skip."""

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fedmr_med.data.flamby_isic import RAW_FOLDER, SPLIT_FILE, read_split
from fedmr_med.data.prepare_isic import prepare_isic
from tests.helpers.flamby_clients import CENTERS, PER_CENTER


@pytest.fixture(scope="session")
def flamby_strategies() -> ModuleType:
    checkout = os.environ.get("FEDMR_MED_FLAMBY")
    if checkout and checkout not in sys.path:
        sys.path.insert(0, checkout)
    pytest.importorskip("flamby", reason="FLamby is not there: name a checkout in FEDMR_MED_FLAMBY")
    pytest.importorskip("pandas")
    return pytest.importorskip("flamby.strategies")


@pytest.fixture(scope="session")
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
