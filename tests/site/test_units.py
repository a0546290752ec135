"""What privacy protects: a patient, wherever a site knows whose images they are."""

from pathlib import Path

import numpy as np
import pytest

from fedmr_med import data
from fedmr_med.config import TaskConfig
from fedmr_med.data.base import units
from fedmr_med.data.own import OwnData, from_torch
from fedmr_med.site.private import image_shares
from tests.helpers.pictures import manifest_site, write_manifest_folder


@pytest.mark.parametrize("held_out", [0.0, 0.2])
def test_patients_stay_the_unit_where_training_images_are_held_out(tmp_path: Path, held_out: float) -> None:
    """Whoever asks for privacy of patients must not silently get that of images."""
    rows = [(f"{i}.png", "ab"[i // 10 % 2], "train" if i < 60 else "test", f"p{i // 5}") for i in range(80)]
    write_manifest_folder(tmp_path / "site", rows)
    names = {"dataset": "isic2019", "class_names": ["a", "b"], "image_size": 8, "transform": "imagenet"}
    site = manifest_site(tmp_path / "site", **({"held_out": held_out} if held_out else {}))
    fold = data.load(site, TaskConfig.model_validate(names), seed=0).train
    patients = len(fold) // 5
    assert len(np.unique(units(fold))) == patients == (12 if held_out == 0 else 10)
    assert image_shares(fold).sum() == pytest.approx(patients)


def test_patients_stay_the_unit_of_a_dataset_of_ones_own() -> None:
    pictures = [(np.zeros((8, 8, 3), np.uint8), i % 2) for i in range(20)]
    patients = [f"p{i // 10}" for i in range(20)]
    own = OwnData(pictures, pictures, train_groups=patients, test_groups=["q"] * 20, plain=pictures)
    names = {"dataset": "own", "class_names": ["a", "b"], "image_size": 8, "transform": "imagenet"}
    made = from_torch(own, TaskConfig.model_validate(names))
    for fold in (made.train, made.plain):
        assert fold is not None
        assert len(np.unique(units(fold))) == 2
        assert image_shares(fold).tolist() == [0.1] * 20
