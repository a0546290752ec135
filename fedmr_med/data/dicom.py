"""Reading a DICOM image as a screen would show it: RGB of 8 bits."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fedmr_med.data.bounds import UnreadableImageError, check_size

if TYPE_CHECKING:
    from PIL import Image

_MOST_BITS = 32
_MAGIC_AT, _MAGIC = 128, b"DICM"


def is_dicom(path: Path) -> bool:
    """Whether a file begins as DICOM files do, whatever its name.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        return stream.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC


def element_of(path: Path, keyword: Literal["PatientID", "PatientName"]) -> str:
    """Return what a DICOM file says of its patient, "" where it says nothing or cannot be read."""
    from pydicom import dcmread

    try:
        return str(dcmread(path, stop_before_pixels=True, specific_tags=[keyword]).get(keyword) or "").strip()
    except Exception:  # whatever pydicom raises: who reads the picture says what is wrong with the file
        return ""


def read_dicom(path: Path) -> "Image.Image":
    """Read the picture of a DICOM file.

    Grey values go through the modality LUT, then through the file's VOI LUT or its first window; without either, the
    darkest is black and the brightest white. MONOCHROME1, in which high values are dark, is inverted. Palettes and YBR
    become RGB.

    Raises:
        UnreadableImageError: it holds no picture, several frames, or too many pixels; or all of it is deflated,
            which pydicom inflates to any size before it can be looked at.
        Exception: pydicom cannot decode it.
    """
    from PIL import Image
    from pydicom import dcmread
    from pydicom.filereader import read_file_meta_info
    from pydicom.pixels import apply_color_lut, pixel_array
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    if read_file_meta_info(path).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
        raise UnreadableImageError("the DICOM file is deflated as a whole; save it in another transfer syntax")
    dataset = dcmread(path)
    if "PixelData" not in dataset:
        raise UnreadableImageError("the DICOM file holds no picture")
    if int(dataset.get("NumberOfFrames") or 1) > 1:
        raise UnreadableImageError(f"the DICOM file holds {dataset.NumberOfFrames} frames; give one picture per file")
    check_size(int(dataset.Columns), int(dataset.Rows))
    if int(dataset.SamplesPerPixel) not in (1, 3) or int(dataset.BitsAllocated) > _MOST_BITS:
        raise UnreadableImageError("the DICOM file holds neither a grey nor a colour picture of at most 32 bits")
    pixels = pixel_array(dataset)  # YBR becomes RGB
    interpretation = str(dataset.PhotometricInterpretation)
    if interpretation == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, dataset)
        bits = 8 * pixels.dtype.itemsize
    else:
        bits = int(dataset.BitsStored)
    if pixels.ndim == 3:
        return Image.fromarray(_to_bytes(np.divide(pixels[..., :3], 2**bits - 1, dtype=np.float32)))
    grey = _shown(pixels, dataset)
    if interpretation == "MONOCHROME1":
        np.subtract(1, grey, out=grey)
    return Image.fromarray(_to_bytes(grey)).convert("RGB")


def _shown(pixels: npt.NDArray[Any], dataset: Any) -> npt.NDArray[np.float64]:
    """Return stored grey values as brightness from 0 to 1."""
    from pydicom.pixels import apply_modality_lut, apply_voi_lut

    values = apply_modality_lut(pixels, dataset)
    if dataset.get("VOILUTSequence"):
        bits = int(dataset.VOILUTSequence[0].LUTDescriptor[2])
        return np.asarray(apply_voi_lut(values.astype(np.int64), dataset, prefer_lut=True) / (2**bits - 1))
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    exact: npt.NDArray[np.float64] = values.astype(np.float64)
    if centre is None or width is None or width <= 1:
        low, high = exact.min(), exact.max()
    elif str(dataset.get("VOILUTFunction") or "LINEAR") == "LINEAR_EXACT":
        low, high = centre - width / 2, centre + width / 2
    else:
        # The standard's LINEAR, PS3.3 C.11.2.1.2: a window of 256 around 128 is 0 to 255.
        low, high = centre - 0.5 - (width - 1) / 2, centre - 0.5 + (width - 1) / 2
    if str(dataset.get("VOILUTFunction") or "") == "SIGMOID" and centre is not None and width:
        return np.asarray(1 / (1 + np.exp(-4 * (exact - centre) / width)))
    exact -= low
    exact /= max(high - low, 1e-9)
    return exact


def _first(value: Any) -> float | None:
    """Return the first of one or several numbers."""
    if value is None or value == "":
        return None
    return float(value) if isinstance(value, str | int | float) else float(value[0])


def _to_bytes(brightness: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return brightness from 0 to 1 as bytes; in place, as a large picture is many times its file."""
    np.clip(brightness, 0, 1, out=brightness)
    brightness *= 255
    np.rint(brightness, out=brightness)
    return brightness.astype(np.uint8)
