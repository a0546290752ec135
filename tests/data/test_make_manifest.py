"""A manifest is made from folders of images, or from a table of other columns."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmr_med.data.check import check_folder
from fedmr_med.data.images import SUFFIXES
from fedmr_med.data.make_manifest import Item, assign_folds, make_manifest
from fedmr_med.data.prepared import find_images
from fedmr_med.errors import DataError
from tests.helpers.dicoms import write_dicom
from tests.helpers.errors import raises
from tests.helpers.pictures import write_csv


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def rows(root: Path) -> list[dict[str, str]]:
    with (root / "manifest.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_folders_name_the_classes(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{name}/{i}.png" for name in ("MEL", "NV") for i in range(10)), "NV/notes.txt")
    made = make_manifest(tmp_path, split=0.2)
    assert (made.classes, made.train, made.test) == (("MEL", "NV"), 16, 4)
    assert sum(row["label"] == "MEL" and row["fold"] == "test" for row in rows(tmp_path)) == 2
    assert made.site_file and "share_prototypes: false" in made.site_file.read_text()
    assert "16 (MEL 8, NV 8)" in next(f.message for f in check_folder(tmp_path) if f.outcome == "pass")
    with raises("file.exists", "--force", kind=DataError):
        make_manifest(tmp_path)
    assert make_manifest(tmp_path, replace=True).site_file is None


def test_folders_of_folds_are_taken_as_they_are(tmp_path: Path) -> None:
    touch(tmp_path, "Train/MEL/a.png", "Test/MEL/b.png", "Train/NV/c.png")
    make_manifest(tmp_path)
    assert [(row["image"], row["fold"]) for row in rows(tmp_path)] == [
        ("Test/MEL/b.png", "test"),
        ("Train/MEL/a.png", "train"),
        ("Train/NV/c.png", "train"),
    ]


@pytest.mark.parametrize("pattern", ["{label}/p{patient}/{i}.jpg", "p{patient}/{label}/{i}.jpg"])
def test_the_images_of_a_patient_stay_in_one_fold(tmp_path: Path, pattern: str) -> None:
    names = [pattern.format(label=label, patient=p, i=i) for label in ("A", "B") for p in range(6) for i in range(3)]
    touch(tmp_path, *names)
    make_manifest(tmp_path, split=0.5, group_by="patient")
    folds: dict[str, set[str]] = {}
    for row in rows(tmp_path):
        folds.setdefault(row["group"], set()).add(row["fold"])
        assert row["label"] in ("A", "B")
    assert len(folds) == 6
    assert all(len(fold) == 1 for fold in folds.values())


def test_a_table_names_images_labels_and_patients(tmp_path: Path) -> None:
    touch(tmp_path, "part1/ISIC_1.jpg", "part2/ISIC_2.jpg", "part2/ISIC_3.jpg")
    table = [("ISIC_1", "mel", "7"), ("x\\ISIC_2.jpg", "nv", "8"), ("part2/ISIC_3.jpg", "nv", "7")]
    write_csv(tmp_path / "metadata.csv", ("image_id", "dx", "Patient"), table[:1] + table[2:])
    make_manifest(tmp_path, group_by="patient")
    assert [(row["image"], row["label"], row["group"]) for row in rows(tmp_path)] == [
        ("part1/ISIC_1.jpg", "mel", "7"),
        ("part2/ISIC_3.jpg", "nv", "7"),
    ]
    write_csv(tmp_path / "metadata.csv", ("image_id", "dx"), [("ISIC_9", "nv")])
    with pytest.raises(DataError, match=r"not in .*: ISIC_9 \(row 2\)"):
        make_manifest(tmp_path, replace=True)
    with raises("data.column", "patient"):
        make_manifest(tmp_path, replace=True, group_by="patient")


def test_what_cannot_be_told_is_asked(tmp_path: Path) -> None:
    with raises("data.empty"):
        make_manifest(tmp_path)
    touch(tmp_path, "a.png", "MEL/b.png")
    with raises("data.layout"):
        make_manifest(tmp_path)


def test_every_class_with_two_groups_is_tested_and_trained() -> None:
    items = [Item(f"{i}", "rare" if i < 2 else "often") for i in range(100)]
    folds = assign_folds(items, 0.05, seed=3)
    assert sorted(folds[:2]) == ["test", "train"]
    assert folds == assign_folds(items, 0.05, seed=3)
    assert set(assign_folds(items, 0.0, seed=3)) == {"train"}


def test_a_manifest_lists_the_files_that_predict_reads(tmp_path: Path) -> None:
    picture = np.tile(np.arange(64, dtype=np.uint8), (64, 1))
    for label in ("NV", "MEL"):
        (tmp_path / label).mkdir()
        for suffix in sorted(SUFFIXES):
            Image.fromarray(picture).save(tmp_path / label / f"a{suffix.upper()}", format="PNG")
        (tmp_path / label / "notes.txt").write_text("no image")
        (tmp_path / label / "README").write_text("no image either")
        write_dicom(tmp_path / label / "scan", picture.astype(np.uint16))
    found = find_images(tmp_path).names
    assert len(found) == 2 * (len(SUFFIXES) + 1)
    make_manifest(tmp_path)
    assert sorted(row["image"] for row in rows(tmp_path)) == list(found)
    assert not [line for line in check_folder(tmp_path) if "not listed" in line.message]
