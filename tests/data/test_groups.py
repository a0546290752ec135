"""Columns that name patients or lesions are known by their usual names."""

from fedmr_med.data.groups import group_names, known_columns, similar_columns


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
