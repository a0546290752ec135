"""DICOM structured reports (SR): what a model answers for a DICOM image, for an archive (PACS) to keep beside it.

A report is of the patient and the study of its image, names the image, the model and its version, and gives the answer
and a probability for each class. It is unverified, and no reading by a person.
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.errors import InvalidDicomError
from pydicom.uid import ComprehensiveSRStorage, ExplicitVRLittleEndian, generate_uid

from fedmr_med.inference.predict import Prediction, Predictor
from fedmr_med.version import __version__

SCHEME = "99FEDMR"
"""Of the codes of classes: their number in the job, with their name as the meaning."""

_TITLE = ("18748-4", "LN", "Diagnostic imaging report")
_DEVICE = ("121007", "DCM", "Device")
_CODES = {
    "observer": ("121005", "DCM", "Observer Type"),
    "device": ("121013", "DCM", "Device Observer Name"),
    "algorithm": ("111001", "DCM", "Algorithm Name"),
    "version": ("111003", "DCM", "Algorithm Version"),
    "image": ("121112", "DCM", "Source of Measurement"),
    "finding": ("121071", "DCM", "Finding"),
    "comment": ("121106", "DCM", "Comment"),
}
_OF_THE_STUDY = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyInstanceUID", "StudyDate", "StudyTime"),
    *("StudyID", "AccessionNumber", "ReferringPhysicianName"),
)
_NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "SOPClassUID", "SOPInstanceUID")


def write_reports(
    predictor: Predictor, model: str, root: Path, predictions: Iterable[Prediction], folder: Path
) -> tuple[list[Path], dict[str, str]]:
    """Write a report for each DICOM image that was answered, into one new series of each study.

    Args:
        model: SHA-256 of the model file.
        root: folder that the names of images are relative to.
        folder: for the reports, ``UID.dcm`` each.

    Returns:
        The files, and for each other image the reason why there is none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, left, series = list[Path](), dict[str, str](), dict[str, str]()
    for prediction in predictions:
        if prediction.error:
            left[prediction.image] = "it cannot be read"
            continue
        try:
            image = dcmread(root / prediction.image, stop_before_pixels=True)
        except InvalidDicomError:
            left[prediction.image] = "it is no DICOM file"
            continue
        missing = [name for name in _NEEDED if not image.get(name)]
        if missing:
            left[prediction.image] = f"it has no {missing[0]}"
            continue
        own = series.setdefault(image.StudyInstanceUID, generate_uid())
        made = _report(image, _tree(predictor, model, prediction, image), own, len(written) + 1)
        path = folder / f"{made.SOPInstanceUID}.dcm"
        made.save_as(path, enforce_file_format=True)
        written.append(path)
    return written, left


def _tree(predictor: Predictor, model: str, prediction: Prediction, image: Dataset) -> list[Dataset]:
    """Return the content of a report below its title."""
    names, job = predictor.class_names, predictor.saved.job
    codes = [_code(str(label), SCHEME, name[:64]) for label, name in enumerate(names)]
    said = int(prediction.probabilities.argmax())
    version = f"fedmr_med {__version__}, model SHA-256 {model}"
    return [
        _item("HAS OBS CONTEXT", "CODE", _CODES["observer"], ConceptCodeSequence=[_code(*_DEVICE)]),
        _item("HAS OBS CONTEXT", "TEXT", _CODES["device"], TextValue="fedmr_med"),
        _item("CONTAINS", "TEXT", _CODES["algorithm"], TextValue=f"{job.name} ({job.method.name}, {job.model.name})"),
        _item("CONTAINS", "TEXT", _CODES["version"], TextValue=version),
        _item("CONTAINS", "IMAGE", _CODES["image"], ReferencedSOPSequence=[_reference(image)]),
        _item("CONTAINS", "CODE", _CODES["finding"], ConceptCodeSequence=[codes[said]]),
        *(_probability(code, chance) for code, chance in zip(codes, prediction.probabilities, strict=True)),
        _item("CONTAINS", "TEXT", _CODES["comment"], TextValue="Research software, not a medical device. Unverified."),
    ]


def _report(image: Dataset, content: list[Dataset], series: str, number: int) -> Dataset:
    """Return the report of an image with the elements that its kind of DICOM object must have."""
    now = datetime.now()
    made = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.file_meta.MediaStorageSOPClassUID = made.SOPClassUID = ComprehensiveSRStorage
    made.file_meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID = generate_uid()
    made.SpecificCharacterSet = "ISO_IR 192"
    for name in _OF_THE_STUDY:
        setattr(made, name, image.get(name) or "")
    made.Modality, made.SeriesInstanceUID, made.SeriesNumber, made.InstanceNumber = "SR", series, 1, number
    made.Manufacturer, made.ManufacturerModelName, made.SoftwareVersions = "fedmr_med", "fedmr_med", __version__
    made.ContentDate, made.ContentTime = now.strftime("%Y%m%d"), now.strftime("%H%M%S")
    made.CompletionFlag, made.VerificationFlag, made.PreliminaryFlag = "COMPLETE", "UNVERIFIED", "PRELIMINARY"
    made.ReferencedPerformedProcedureStepSequence, made.PerformedProcedureCodeSequence = [], []
    of_series = _dataset(SeriesInstanceUID=image.SeriesInstanceUID, ReferencedSOPSequence=[_reference(image)])
    evidence = _dataset(StudyInstanceUID=image.StudyInstanceUID, ReferencedSeriesSequence=[of_series])
    made.CurrentRequestedProcedureEvidenceSequence = [evidence]
    made.ValueType, made.ContinuityOfContent = "CONTAINER", "SEPARATE"
    made.ConceptNameCodeSequence, made.ContentSequence = [_code(*_TITLE)], content
    return made


def _item(relation: str, kind: str, concept: tuple[str, str, str], **values: Any) -> Dataset:
    named = {"ConceptNameCodeSequence": [_code(*concept)]}
    return _dataset(RelationshipType=relation, ValueType=kind, **named, **values)


def _probability(code: Dataset, chance: float) -> Dataset:
    percent = _code("%", "UCUM", "Percent")
    measured = _dataset(NumericValue=f"{100 * chance:.4f}", MeasurementUnitsCodeSequence=[percent])
    item = _dataset(RelationshipType="CONTAINS", ValueType="NUM", MeasuredValueSequence=[measured])
    item.ConceptNameCodeSequence = [code]
    return item


def _reference(image: Dataset) -> Dataset:
    return _dataset(ReferencedSOPClassUID=image.SOPClassUID, ReferencedSOPInstanceUID=image.SOPInstanceUID)


def _code(value: str, scheme: str, meaning: str) -> Dataset:
    return _dataset(CodeValue=value, CodingSchemeDesignator=scheme, CodeMeaning=meaning)


def _dataset(**elements: Any) -> Dataset:
    made = Dataset()
    for name, value in elements.items():
        setattr(made, name, value)
    return made
