"""Small DICOM files."""

from pathlib import Path
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid


def write_dicom(path: Path, pixels: np.ndarray, **elements: Any) -> None:
    """Write grey (h, w) or colour (h, w, 3) pixels, 16-bit ones as 12 bits; ``elements`` change or, as None, remove."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset = Dataset()
    dataset.file_meta = meta
    dataset.SOPClassUID, dataset.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    colour = pixels.dtype == np.uint8
    dataset.SamplesPerPixel = 3 if colour else 1
    dataset.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
    if colour:
        dataset.PlanarConfiguration = 0
    dataset.Rows, dataset.Columns = pixels.shape[:2] if colour else pixels.shape[-2:]
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = (8, 8, 7) if colour else (16, 12, 11)
    dataset.PixelRepresentation = 0
    dataset.PixelData = pixels.tobytes()
    for name, value in elements.items():
        if value is None:
            delattr(dataset, name)
        else:
            setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)
