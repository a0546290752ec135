"""A structured report is of its image's patient and study, and says what the table of predictions says."""

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.uid import ComprehensiveSRStorage, generate_uid

from tests.helpers.command_line import call
from tests.helpers.dicoms import write_dicom

STUDY, OTHER = generate_uid(), generate_uid()
PATIENT = {
    "PatientName": "Müller^Anna",
    "PatientID": "4711",
    "SpecificCharacterSet": "ISO_IR 192",
    "AccessionNumber": "A1",
}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two images of one study and one of another, one without a study, and a photograph."""
    folder, generator = tmp_path / "images", np.random.default_rng(0)
    folder.mkdir()
    for name, study in (("a", STUDY), ("b", STUDY), ("c", OTHER), ("none", None)):
        pixels = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        uids = {} if study is None else {"StudyInstanceUID": study, "SeriesInstanceUID": generate_uid()}
        write_dicom(folder / f"{name}.dcm", pixels, **PATIENT, **uids)
    return folder


def test_each_dicom_image_of_a_study_has_a_report(run: Path, pictures: Path, images: Path, tmp_path: Path) -> None:
    (images / "photo.png").write_bytes((pictures / "a.png").read_bytes())
    model, out = run / "best_model.pt", tmp_path / "predictions.csv"
    done = call("predict", model, images, "-o", out, "--sr", tmp_path / "sr", "--no-journal")
    assert "3 structured reports" in done.stdout
    assert "none.dcm: it has no StudyInstanceUID" in done.stderr and "photo.png: it is no DICOM file" in done.stderr
    with out.open(newline="") as stream:
        rows = {row["image"]: row for row in csv.DictReader(stream)}
    reports = [dcmread(path) for path in sorted((tmp_path / "sr").glob("*.dcm"))]
    assert len({report.SOPInstanceUID for report in reports}) == 3
    assert {report.SOPClassUID for report in reports} == {ComprehensiveSRStorage}
    assert len({report.SeriesInstanceUID for report in reports}) == 2, "a new series for each study"
    answered = set()
    for report in reports:
        (image,) = [path for path in images.glob("*.dcm") if _of(path) == _evidence(report)]
        answered.add(image.name)
        source, row = dcmread(image), rows[image.name]
        for name in ("PatientName", "PatientID", "StudyInstanceUID", "AccessionNumber"):
            assert report[name].value == source[name].value
        assert (report.Modality, report.VerificationFlag, "PixelData" in report) == ("SR", "UNVERIFIED", False)
        content = {item.ConceptNameCodeSequence[0].CodeMeaning: item for item in report.ContentSequence}
        assert content["Finding"].ConceptCodeSequence[0].CodeMeaning == row["answer"]
        assert content["Source of Measurement"].ReferencedSOPSequence[0].ReferencedSOPInstanceUID == _of(image)
        assert hashlib.sha256(model.read_bytes()).hexdigest() in content["Algorithm Version"].TextValue
        for column, chance in row.items():
            if column.startswith("p_"):
                measured = content[column.removeprefix("p_")].MeasuredValueSequence[0]
                assert float(measured.NumericValue) == pytest.approx(100 * float(chance), abs=1e-3)
                assert measured.MeasurementUnitsCodeSequence[0].CodeValue == "%"
    assert answered == {"a.dcm", "b.dcm", "c.dcm"}


def _of(path: Path) -> str:
    return str(dcmread(path).SOPInstanceUID)


def _evidence(report: object) -> str:
    study = report.CurrentRequestedProcedureEvidenceSequence[0]  # type: ignore[attr-defined]
    return str(study.ReferencedSeriesSequence[0].ReferencedSOPSequence[0].ReferencedSOPInstanceUID)
