"""Reading a DICOM image as a screen would show it: RGB of 8 bits."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

_MAGIC_AT, _MAGIC = 128, b"DICM"


def is_dicom(path: Path) -> bool:
    """Whether a file begins as DICOM files do, whatever its name.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        return stream.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC


def read_dicom(path: Path) -> "Image.Image":
    """Read the picture of a DICOM file.

    Grey values go through the modality LUT, then through the file's VOI LUT or its first window; without either, the
    darkest is black and the brightest white. MONOCHROME1, in which high values are dark, is inverted. Palettes and YBR
    become RGB.

    Raises:
        ValueError: it holds no picture, or several frames.
        Exception: pydicom cannot decode it.
    """
    from PIL import Image
    from pydicom import dcmread
    from pydicom.pixels import apply_color_lut, pixel_array

    dataset = dcmread(path)
    if "PixelData" not in dataset:
        raise ValueError("the DICOM file holds no picture")
    if int(dataset.get("NumberOfFrames") or 1) > 1:
        raise ValueError(f"the DICOM file holds {dataset.NumberOfFrames} frames; give one picture per file")
    pixels = pixel_array(dataset)  # YBR becomes RGB
    interpretation = str(dataset.PhotometricInterpretation)
    if interpretation == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, dataset)
        bits = 8 * pixels.dtype.itemsize
    else:
        bits = int(dataset.BitsStored)
    if pixels.ndim == 3:
        return Image.fromarray(_to_bytes(pixels[..., :3] / (2**bits - 1)))
    grey = _shown(pixels, dataset)
    return Image.fromarray(_to_bytes(1 - grey if interpretation == "MONOCHROME1" else grey)).convert("RGB")


def _shown(pixels: npt.NDArray[Any], dataset: Any) -> npt.NDArray[np.float64]:
    """Return stored grey values as brightness from 0 to 1."""
    from pydicom.pixels import apply_modality_lut, apply_voi_lut

    values = apply_modality_lut(pixels, dataset)
    if dataset.get("VOILUTSequence"):
        bits = int(dataset.VOILUTSequence[0].LUTDescriptor[2])
        return np.asarray(apply_voi_lut(values.astype(np.int64), dataset, prefer_lut=True) / (2**bits - 1))
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    exact = values.astype(np.float64)
    if centre is None or width is None or width <= 1:
        low, high = exact.min(), exact.max()
    elif str(dataset.get("VOILUTFunction") or "LINEAR") == "LINEAR_EXACT":
        low, high = centre - width / 2, centre + width / 2
    else:
        # The standard's LINEAR, PS3.3 C.11.2.1.2: a window of 256 around 128 is 0 to 255.
        low, high = centre - 0.5 - (width - 1) / 2, centre - 0.5 + (width - 1) / 2
    if str(dataset.get("VOILUTFunction") or "") == "SIGMOID" and centre is not None and width:
        return np.asarray(1 / (1 + np.exp(-4 * (exact - centre) / width)))
    return np.asarray((exact - low) / max(high - low, 1e-9))


def _first(value: Any) -> float | None:
    """Return the first of one or several numbers."""
    if value is None or value == "":
        return None
    return float(value) if isinstance(value, str | int | float) else float(value[0])


def _to_bytes(brightness: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.asarray((np.clip(brightness, 0, 1) * 255).round().astype(np.uint8))
