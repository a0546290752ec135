"""A hospital's folder is checked without a kit: every bad row, image and double is named."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from fedmr_med.data.check import check_folder
from fedmr_med.data.describe import describe
from fedmr_med.errors import DataError
from tests.helpers.dicoms import write_dicom
from tests.helpers.errors import raises
from tests.helpers.pictures import write_csv, write_manifest_folder, write_picture

ROWS = [
    ("a.png", "red", "train", "p1"),
    ("b.png", "blue", "train", "p2"),
    ("c.png", "red", "test", "p3"),
    ("d.png", "blue", "test", "p4"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMR_MED_CACHE", str(tmp_path / "cache"))


def messages(folder: Path, *outcomes: str) -> list[str]:
    return [finding.message for finding in check_folder(folder) if finding.outcome in outcomes]


def test_a_good_folder_has_nothing_to_fix(tmp_path: Path) -> None:
    root = tmp_path / "north"
    write_manifest_folder(root, ROWS)
    assert messages(root, "fix") == []
    assert messages(root, "note") == [
        "fewer than 11 test images (min_class_count), so no score of the class leaves: blue 1, red 1"
    ]
    assert messages(tmp_path, "pass") == [
        "4 images: train 2 (blue 1, red 1); test 2 (blue 1, red 1)",
        "all 4 images can be read",
        "no picture is there twice",
    ]


def test_every_mistake_of_a_folder_is_said_at_once(tmp_path: Path) -> None:
    root = tmp_path / "north"
    rows = [*ROWS, ("e.png", "red", "sometime", ""), ("f.png", "red", "train", ""), ("g.png", "red", "test", "p1")]
    write_manifest_folder(root, [*rows, ("h.png", "", "train", ""), ("gone.png", "red", "train", "")])
    write_picture(root / "g.png", seed=0)  # as a.png, which is in the other fold
    write_picture(root / "d.png", seed=2)  # as c.png, which has another label
    Image.new("RGB", (1, 1)).save(root / "f.png")
    (root / "b.png").write_bytes((root / "b.png").read_bytes()[:200])
    (root / "gone.png").unlink()
    write_picture(root / "more" / "x.jpg", seed=50)
    found = "\n".join(messages(root, "note", "fix"))
    for said in (
        "row 6: fold is 'sometime'",
        "row 9: label ''",
        "1 patients or lesions have images in both folds: p1",
        "f.png: 1 x 1 pixels are too few",
        "b.png: ",
        "gone.png: No such file",
        "3 of 7 images cannot be read",
        "1 picture is in both folds, so the test is too easy: a.png = g.png",
        "1 picture is with two labels, one of which is wrong: c.png = d.png",
        "images of the folder are not listed, such as e.png",
    ):
        assert said in found, found


def test_a_hospital_without_a_manifest_is_named(tmp_path: Path) -> None:
    write_manifest_folder(tmp_path / "north", ROWS)
    write_picture(tmp_path / "south" / "red" / "a.png")
    (tmp_path / "notes").mkdir()
    assert [finding.site for finding in check_folder(tmp_path) if finding.outcome == "fix"] == ["south"]


def test_the_name_of_a_patient_in_a_file_is_pointed_out(tmp_path: Path) -> None:
    write_manifest_folder(tmp_path, ROWS)
    write_dicom(tmp_path / "a.png", np.zeros((40, 40), dtype=np.uint16), PatientName="Doe^Jane")
    assert any("the name of a patient (1), such as a.png" in message for message in messages(tmp_path, "note"))


def test_a_problem_of_many_rows_is_said_once(tmp_path: Path) -> None:
    write_manifest_folder(tmp_path, [(f"{i}.png", "green" if i else "red", "train", "") for i in range(15)])
    findings = [finding.message for finding in check_folder(tmp_path, ("red", "blue")) if finding.outcome == "fix"]
    assert len(findings) == 1
    assert "rows 3-16: label 'green'" in findings[0]


def test_columns_that_name_patients_are_seen(tmp_path: Path) -> None:
    rows = [(f"{i}.png", "ab"[i % 2], "test" if i > 5 else "train", f"L{i % 4}", f"E{i // 2}") for i in range(8)]
    write_manifest_folder(tmp_path, [(*row[:3], "") for row in rows])
    write_csv(tmp_path / "manifest.csv", ("image", "label", "fold", "lesion_id", "exam_no"), rows)
    assert "2 patients or lesions have images in both folds: L2, L3" in messages(tmp_path, "fix")
    assert any("'exam_no' is not used" in message for message in messages(tmp_path, "note"))


def test_the_patients_of_dicom_files_are_seen(tmp_path: Path) -> None:
    rows = [(f"{i}.dcm", "ab"[i % 2], "test" if i > 5 else "train", "") for i in range(8)]
    write_manifest_folder(tmp_path, rows, pictures=False)
    for i, row in enumerate(rows):
        picture = np.random.default_rng(i).integers(0, 4096, (16, 16)).astype(np.uint16)
        write_dicom(tmp_path / row[0], picture, PatientID=f"P{i % 3}")
    assert any("2 patients that DICOM files name" in message for message in messages(tmp_path, "fix"))


def test_a_picture_in_another_size_and_exposure_is_seen_in_the_other_fold(tmp_path: Path) -> None:
    rows = [(f"{i}.png", "ab"[i % 2], "train" if i < 30 else "test", "") for i in range(60)]
    write_manifest_folder(tmp_path, rows)
    with Image.open(tmp_path / "7.png") as picture:
        ImageEnhance.Brightness(picture.resize((40, 30))).enhance(1.2).save(tmp_path / "44.png")
    (found,) = (message for message in messages(tmp_path, "note") if "nearly agree" in message)
    assert found.startswith("test and train pictures nearly agree (1)") and found.endswith("44.png ~ 7.png")
    assert "no picture is there twice" not in messages(tmp_path, "pass")


def test_a_site_that_cannot_be_checked_does_not_hide_the_others(tmp_path: Path) -> None:
    write_manifest_folder(tmp_path / "north", ROWS)
    write_csv(tmp_path / "south" / "manifest.csv", ("image", "fold"), [("a.png", "train")])
    (tmp_path / "west").mkdir()
    (tmp_path / "west" / "site.yaml").write_text("data: {source: manifest, root: .}\npolcy: {}\n")
    findings = list(check_folder(tmp_path, ["red", "blue"]))
    assert [f.site for f in findings if f.outcome == "fix"] == ["south", "west"]
    assert any("polcy" in f.message for f in findings)


def test_what_is_no_hospitals_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no manifest\.csv and no site\.yaml.*data manifest"):
        list(check_folder(tmp_path))
    with raises("file.missing", kind=DataError):
        list(check_folder(tmp_path / "nowhere"))


def test_describe_opens_the_images_unless_it_is_to_be_quick(tmp_path: Path) -> None:
    root = tmp_path / "sites" / "north"
    write_manifest_folder(root, [*ROWS, ("e.png", "red", "test", "")])
    write_picture(root / "e.png", seed=0)
    (root / "b.png").write_bytes(b"")
    (root / "site.yaml").write_text("data: {source: manifest, root: .}\n")
    (quick,) = describe(tmp_path / "sites", class_names=("red", "blue")).sites
    assert (quick.unreadable, quick.warnings) == (None, ())
    (site,) = describe(tmp_path / "sites", class_names=("red", "blue"), quick=False).sites
    assert site.unreadable == (f"{root / 'b.png'}: the file is empty",)
    assert "a.png = e.png" in site.warnings[0]
