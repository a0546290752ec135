"""A manifest is made from folders of images, or from a table of other columns."""

import csv
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmr_med.data.check import check_folder
from fedmr_med.data.drawing import Item, assign_folds
from fedmr_med.data.folds import shared_groups
from fedmr_med.data.image_files import find_images
from fedmr_med.data.images import SUFFIXES
from fedmr_med.data.make_manifest import make_manifest
from fedmr_med.data.manifest import parse_manifest
from fedmr_med.errors import DataError, PolicyError
from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.sites import load_site
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
    assert make_manifest(tmp_path, force=True).site_file is None


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
        make_manifest(tmp_path, force=True)
    with raises("data.column", "patient"):
        make_manifest(tmp_path, force=True, group_by="patient")


def test_a_table_may_have_columns_of_its_own_and_name_missing_files(tmp_path: Path) -> None:
    touch(tmp_path, unicodedata.normalize("NFD", "Bild für A.JPG"), "b.png")
    (tmp_path / "liste.csv").write_text("Datei;Befund\nBild für a.jpg;mel\nb;nv\nfehlt.png;nv\n", encoding="utf-8-sig")
    with raises("data.column", "--image-column"):
        make_manifest(tmp_path)
    with raises("data.column", "--label-column"):
        make_manifest(tmp_path, image_column="Datei", label_column="Diagnose")
    columns = {"image_column": "Datei", "label_column": "BEFUND"}
    with raises("data.missing-images", "--skip-missing"):
        make_manifest(tmp_path, **columns)
    made = make_manifest(tmp_path, **columns, skip_missing=True)
    assert [row["label"] for row in rows(tmp_path)] == ["mel", "nv"]
    assert "fehlt.png (row 4)" in made.warnings[0]
    with raises("data.missing-images"):
        make_manifest(tmp_path, image_column="Befund", label_column="Datei", skip_missing=True, force=True)


def test_files_with_the_same_content_stay_in_one_fold_with_their_patients(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{i}.png" for i in range(40)))
    for i in range(40):
        (tmp_path / f"{i}.png").write_bytes(b"same" if i in (0, 39) else bytes([i] * 4))
    write_csv(tmp_path / "table.csv", ("image", "label", "patient"), [(f"{i}.png", "a", i // 4) for i in range(40)])
    make_manifest(tmp_path, split=0.3)
    written = rows(tmp_path)
    assert len({row["group"] for row in written}) == 9
    assert {row["group"] for row in written[:4]} == {row["group"] for row in written[36:]}
    assert len({row["fold"] for row in (*written[:4], *written[36:])}) == 1


def test_a_new_site_file_has_the_policy_that_was_asked_for(tmp_path: Path) -> None:
    touch(tmp_path, "MEL/a.png", "NV/b.png")
    with raises("config.unknown-key", kind=PolicyError):
        make_manifest(tmp_path, policy={"share_all": True})
    make_manifest(tmp_path, policy={"share_metrics": "scalar", "training": {"min_sites": 2}})
    policy = load_site(tmp_path / "site.yaml").policy
    assert policy == SitePolicy(share_metrics="scalar", training=TrainingFloors(min_sites=2))
    with raises("file.exists", "--policy", kind=PolicyError):
        make_manifest(tmp_path, policy={"share_metrics": "none"}, force=True)


def test_what_cannot_be_told_is_asked(tmp_path: Path) -> None:
    with raises("data.empty"):
        make_manifest(tmp_path)
    touch(tmp_path, "a.png", "MEL/b.png")
    with raises("data.layout"):
        make_manifest(tmp_path)


def lesions(shared_data: Path) -> list[dict[str, str]]:
    with (shared_data / "fed_isic2019" / "HAM10000_metadata.csv").open() as stream:
        return list(csv.DictReader(stream))[:1500]


def test_the_lesions_of_ham10000_stay_in_one_fold(shared_data: Path, tmp_path: Path) -> None:
    """Drawn image by image, half of the test images show a lesion that is in the train fold too."""
    listed = lesions(shared_data)
    touch(tmp_path, *(f"{row['image_id']}.jpg" for row in listed))
    write_csv(tmp_path / "HAM10000_metadata.csv", tuple(listed[0]), [tuple(row.values()) for row in listed])
    made = make_manifest(tmp_path)
    assert "'lesion_id'" in made.how
    folds: dict[str, set[str]] = {}
    for row in rows(tmp_path):
        folds.setdefault(row["group"], set()).add(row["fold"])
    assert len(folds) == len({row["lesion_id"] for row in listed})
    assert all(len(fold) == 1 for fold in folds.values())
    make_manifest(tmp_path, group_by="none", force=True)
    assert {row["group"] for row in rows(tmp_path)} == {""}
    # A manifest that keeps the column of its table is checked by it as well.
    named = [(f"{row['image_id']}.jpg", row["dx"], "test" if i % 5 == 0 else "train") for i, row in enumerate(listed)]
    with_lesions = [(*row, source["lesion_id"]) for row, source in zip(named, listed, strict=True)]
    write_csv(tmp_path / "manifest.csv", ("image", "label", "fold", "lesion_id"), with_lesions)
    numbered, problems = parse_manifest(tmp_path / "manifest.csv", {row["dx"]: 0 for row in listed})
    assert not problems and len(shared_groups([row for _, row in numbered])) > 50


def test_folds_of_a_table_are_kept_and_the_others_are_drawn(tmp_path: Path) -> None:
    names = [f"{i}.png" for i in range(40)]
    touch(tmp_path, *names)
    given = ["test"] * 4 + ["val"] * 4 + ["Training"] * 4 + [""] * 28
    table = [(name, "ab"[i % 2], fold) for i, (name, fold) in enumerate(zip(names, given, strict=True))]
    write_csv(tmp_path / "table.csv", ("image", "label", "split"), table)
    make_manifest(tmp_path, seed=4)
    found = {row["image"]: row["fold"] for row in rows(tmp_path)}
    assert [found[name] for name in names[:12]] == ["test"] * 4 + ["train"] * 8
    assert "train" in {found[name] for name in names[12:]}
    write_csv(
        tmp_path / "table.csv", ("image", "label", "fold"), [(name, "ab"[i % 2], i % 5) for i, name in enumerate(names)]
    )
    with raises("data.fold", "fold"):
        make_manifest(tmp_path, force=True)


def test_a_column_that_may_name_patients_is_asked_about(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{i}.png" for i in range(12)))
    table = [(f"{i}.png", "ab"[i % 2], i // 2, i // 3) for i in range(12)]
    write_csv(tmp_path / "table.csv", ("image", "label", "exam_no", "whatever"), table)
    with raises("data.groups", "--group-by"):
        make_manifest(tmp_path)
    assert "'exam_no'" in make_manifest(tmp_path, group_by="exam_no").how
    assert "not used: 'exam_no'" in make_manifest(tmp_path, group_by="none", force=True).how
    write_csv(tmp_path / "table.csv", ("image", "label", "exam_no", "patient_id"), table)
    assert "kept together by 'patient_id'; not used: 'exam_no'" in make_manifest(tmp_path, force=True).how


def test_the_patients_of_dicom_files_are_kept_together(tmp_path: Path) -> None:
    picture = np.zeros((8, 8), dtype=np.uint16)
    for i in range(24):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        write_dicom(tmp_path / "ab"[i % 2] / f"{i}.dcm", picture, PatientID=f"P{i // 4}")
    assert "PatientID" in make_manifest(tmp_path).how
    assert {row["group"] for row in rows(tmp_path)} == {f"P{i}" for i in range(6)}
    for i in range(20):
        write_dicom(tmp_path / "ab"[i % 2] / f"{i}.dcm", picture, PatientID="ANONYMOUS")
    assert "is not used" in make_manifest(tmp_path, force=True).how
    assert {row["group"] for row in rows(tmp_path)} == {""}


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
