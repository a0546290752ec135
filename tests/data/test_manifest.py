"""A hospital's own table is read, and every mistake in it is named with file and row."""

from pathlib import Path

import pytest

from fedmr_med import data
from fedmr_med.data.base import class_counts
from fedmr_med.data.manifest import group_names, known_columns, similar_columns
from fedmr_med.errors import DataError
from tests.helpers.errors import raises
from tests.helpers.pictures import isic_task, manifest_site, write_csv, write_manifest_folder, write_picture

ROWS = [
    ("images/a.png", "MEL", "train", "p1"),
    ("images/b.jpg", "7", "train", "p2"),
    ("c.tiff", "NV", "test", "p3"),
    ("d.bmp", "0", "test", ""),
]


def load(root: Path, **settings: object) -> data.SiteData:
    return data.load(manifest_site(root, **settings), isic_task(), seed=0)


def test_a_manifest_is_read(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    write_manifest_folder(root, ROWS)
    site = load(root)
    assert site.train.labels.tolist() == [0, 7]
    assert site.test.labels.tolist() == [1, 0]
    assert class_counts(site.train, 8).tolist() == [1, 0, 0, 0, 0, 0, 0, 1]
    assert not site.is_demo


def test_the_group_column_is_optional_and_others_are_ignored(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    rows = [("a.png", "train", "ward 5", "MEL"), ("b.png", "test", "ward 6", "NV")]
    write_csv(root / "tables/mine.csv", ("image", "fold", "comment", "label"), rows)
    for row in rows:
        write_picture(root / row[0])
    site = load(root, manifest="tables/mine.csv")
    assert (site.train.labels.tolist(), site.test.labels.tolist()) == ([0], [1])


def test_a_spreadsheets_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    write_manifest_folder(root, ROWS)
    content = (root / "manifest.csv").read_bytes()
    (root / "manifest.csv").write_bytes(b"\xef\xbb\xbf" + content)
    assert len(load(root).train) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("images/a.png", "NV", "train", ""), r"row 6: images/a\.png is listed a second time .*row 2"),
        (("./images/a.png", "NV", "train", ""), r"row 6: images/a\.png is listed a second time"),
        (("e.png", "8", "train", ""), r"row 6: label '8' is not one of 0, 1"),
        (("e.png", "-1", "train", ""), r"row 6: label '-1'"),
        (("e.png", "melanoma", "train", ""), r"row 6: label 'melanoma' is not one of .*MEL, NV"),
        (("e.png", "VSC", "train", ""), r"row 6: label 'VSC' is not one of .*; did you mean VASC\?"),
        (("e.png", "", "train", ""), r"row 6: label ''"),
        (("e.png", "NV", "validation", ""), r"row 6: fold is 'validation', not train or test"),
        (("../e.png", "NV", "train", ""), r"row 6: image '\.\./e\.png' is not a path inside"),
        (("/etc/e.png", "NV", "train", ""), r"row 6: image '/etc/e\.png' is not a path inside"),
        (("..\\e.png", "NV", "train", ""), r"row 6: image .* is not a path inside"),
        (("D:\\export\\e.png", "NV", "train", ""), r"row 6: image .* is a path on a Windows drive; give it relative"),
        (("images\\a.png", "NV", "train", ""), r"row 6: images/a\.png is listed a second time"),
        (("", "NV", "train", ""), r"row 6: image '' is not a path inside"),
        (("e.png", "NV", "test", "p1"), r"group 'p1' is in both folds \(1 such groups\)"),
        (("e.png", "NV", "train"), r"row 6: it does not have 4 values"),
        (("e.png", "NV", "train", "", "more"), r"row 6: it does not have 4 values"),
    ],
)
def test_mistakes_are_named_with_file_and_row(tmp_path: Path, row: tuple[object, ...], message: str) -> None:
    root = tmp_path / "hospital"
    write_manifest_folder(root, [*ROWS, row], pictures=False)
    with pytest.raises(DataError, match=rf"manifest\.csv.*{message}"):
        load(root)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t", ", "])
def test_a_table_of_any_spreadsheet_is_read(tmp_path: Path, encoding: str, separator: str) -> None:
    root = tmp_path / "hospital"
    rows = [
        ("Image", "Label", "Fold", "Group"),
        ("bilder\\lésion 1.png", "mel", "Train", "Müller"),
        ("bilder\\b.png", "Nv", "TEST", "Núñez"),
    ]
    (root / "bilder").mkdir(parents=True)
    content = "\r\n".join(separator.join(row) for row in rows) + "\r\n\r\n"
    (root / "manifest.csv").write_bytes(content.encode(encoding))
    for seed, name in enumerate(("lésion 1.png", "b.png")):
        write_picture(root / "bilder" / name, seed=seed)
    site = load(root)
    assert (site.train.labels.tolist(), site.test.labels.tolist(), site.skipped) == ([0], [1], ())


def test_every_bad_row_is_named(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    bad = [(f"x{i}.png", "what", "train", "") for i in range(12)]
    write_manifest_folder(root, [*ROWS, *bad, ("e.png", "NV")], pictures=False)
    with pytest.raises(DataError) as caught:
        load(root)
    assert "rows 6-17: label 'what'" in str(caught.value)
    assert "row 18: it does not have 4 values" in str(caught.value)


def test_a_patient_in_both_folds_can_be_allowed(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    write_manifest_folder(root, [*ROWS, ("e.png", "NV", "test", "p1")])
    assert len(load(root, allow_shared_groups=True).test) == 3


@pytest.mark.parametrize("missing", ["image", "label", "fold"])
def test_a_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    root = tmp_path / "hospital"
    columns = tuple(name for name in ("image", "label", "fold") if name != missing)
    write_csv(root / "manifest.csv", columns, [("a", "b")])
    with raises("data.column", missing):
        load(root)


def test_missing_folder_missing_file_and_empty_file(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    with raises("file.missing", "data.root", kind=DataError):
        load(root)
    root.mkdir()
    with raises("file.unreadable", kind=DataError):
        load(root)
    (root / "manifest.csv").write_text("")
    with raises("data.column", "image"):
        load(root)
    (root / "manifest.csv").write_text("image,label,fold\n")
    with raises("data.empty"):
        load(root)
    (root / "manifest.csv").write_bytes(b"image,label,fold\n\x81\xfe\n")
    with raises("file.unreadable", kind=DataError):
        load(root)


def test_usual_names_are_known_however_they_are_written() -> None:
    columns = ("image", "patient_id", "patientid", "lesion id", "subject", "group", "age", "center_id", "isic_id")
    assert known_columns(columns) == ("patient_id", "patientid", "lesion id", "subject", "group")


def test_other_columns_are_named_if_their_values_repeat_like_those_of_patients() -> None:
    records = [
        {"study_nr": str(i // 3), "center_id": "7", "image_id": str(i), "valid": "1", "record no": str(i), "age": "50"}
        for i in range(120)
    ]
    assert similar_columns(tuple(records[0]), records, ("image_id",)) == ("study_nr",)


def test_a_patient_and_the_lesions_are_one_group() -> None:
    records = [
        {"patient": "1", "lesion": "a"},
        {"patient": "1", "lesion": "b"},
        {"patient": "", "lesion": "b"},
        {"patient": "", "lesion": "c"},
        {"patient": "2", "lesion": ""},
        {"patient": "", "lesion": ""},
    ]
    found = group_names(records, ("patient", "lesion"))
    assert len(set(found[:3])) == 1
    assert len({found[0], *found[3:]}) == 4
    assert found[5] == ""
    assert group_names(records, ("lesion",)) == ["a", "b", "b", "c", "", ""]
    assert group_names(records, ()) == [""] * 6
