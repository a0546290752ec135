"""Reading one image file, whatever its format: photographs by Pillow, DICOM as a screen would show it."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fedmr_med.config import PreparationConfig
from fedmr_med.data.preparation import jpeg_of

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 50_000_000
"""The largest picture that is decoded: 7,000 pixels square, which takes about 1 GB on the way."""

_TOO_LARGE = f"more than {MAX_PIXELS / 1e6:.0f} million pixels are too many for a picture of a lesion; make it smaller"


class UnreadableImageError(Exception):
    """An image file cannot be used; the message says why."""


def check_size(width: int, height: int) -> None:
    """Look at the size of a picture before it is decoded; raise UnreadableImageError if it has too many pixels."""
    if width * height > MAX_PIXELS:
        raise UnreadableImageError(_TOO_LARGE)


SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".dcm", ".dicom")
MAX_ASPECT_RATIO = 10
MIN_EDGE = 4
_FORMATS = ("JPEG", "JPEG2000", "PNG", "TIFF", "BMP", "DIB", "GIF", "WEBP", "PPM")
"""What a file may be, whatever its name: Pillow would hand PostScript to a program that runs it."""
_PAPER = (255, 255, 255)
# Cameras and scanners of 10, 12 or 14 bits write files of 16.
_GREY_BITS = (8, 10, 12, 14, 16)


def image_files(folder: Path) -> list[str]:
    """Return the image files of a folder and its subfolders, relative to it with forward slashes, in order.

    Raises:
        OSError: a file without a suffix cannot be read.
    """
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    # Scanners and archives write DICOM files without a suffix.
    images = (path for path in files if path.suffix.lower() in SUFFIXES or (not path.suffix and is_dicom(path)))
    return [path.relative_to(folder).as_posix() for path in images]


def decode(path: Path, edge: int, preparation: PreparationConfig | None = None) -> npt.NDArray[np.uint8]:
    """Read an image upright, in RGB, with a shorter edge of ``edge`` pixels.

    An image whose shorter edge has that length, or one pixel less by FLamby's rounding, keeps its pixels.

    Args:
        preparation: what the picture goes through first; None where it is prepared, or nothing is to be done.

    Returns:
        (height, width, 3) uint8.

    Raises:
        UnreadableImageError: the file is missing, empty, damaged, or no picture of a lesion.
    """
    from PIL import Image

    # Twice the edge: the JPEG decoder may leave out resolution that nobody will see.
    if preparation is None:
        image = read_rgb(path, at_least=2 * edge)
    else:
        raw = read_rgb(path)
        _check_shape(raw)
        image = _photograph(BytesIO(jpeg_of(raw, preparation)), 2 * edge)
    _check_shape(image)
    shorter = min(image.size)
    if shorter not in (edge - 1, edge):
        width, height = (max(edge, round(length * edge / shorter)) for length in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image)


def _check_shape(image: "Image.Image") -> None:
    shorter, longer = sorted(image.size)
    if longer > MAX_ASPECT_RATIO * shorter:
        raise UnreadableImageError(f"{image.width} x {image.height} pixels are too long for a picture of a lesion")
    if shorter < MIN_EDGE:
        raise UnreadableImageError(f"{image.width} x {image.height} pixels are too few for a picture of a lesion")


def read_rgb(path: Path, *, at_least: int | None = None) -> "Image.Image":
    """Read an image upright and in RGB.

    Args:
        path: a DICOM file, or one in a format for photographs.
        at_least: edge in pixels that is enough for the caller; a large JPEG is then decoded at a fraction of its size.

    Raises:
        UnreadableImageError: the file is missing, empty, damaged, too large, or does not hold brightness values.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        if path.stat().st_size == 0:
            raise UnreadableImageError("the file is empty")
        if is_dicom(path):
            return read_dicom(path)
        return _photograph(path, at_least)
    except (UnreadableImageError, MemoryError):
        raise
    except UnidentifiedImageError as e:
        raise UnreadableImageError("not an image") from e
    except Image.DecompressionBombError as e:
        raise UnreadableImageError(_TOO_LARGE) from e
    except OSError as e:
        raise UnreadableImageError(e.strerror or str(e)) from e
    except Exception as e:
        # Pillow's readers raise almost anything for a file that is damaged after its beginning.
        raise UnreadableImageError(f"{type(e).__name__}: {e}") from e


def _photograph(file: Path | BytesIO, at_least: int | None) -> "Image.Image":
    from PIL import Image, ImageOps

    with Image.open(file, formats=_FORMATS) as opened:
        if at_least is not None:
            opened.draft("RGB", (at_least, at_least))
        check_size(*opened.size)
        return to_rgb(ImageOps.exif_transpose(opened))


def picture_size(path: Path) -> tuple[int, int]:
    """Return the width and height of a picture that can be read, from the beginning of its file."""
    if is_dicom(path):
        from pydicom import dcmread

        dataset = dcmread(path, stop_before_pixels=True, specific_tags=["Rows", "Columns"])
        return int(dataset.Columns), int(dataset.Rows)
    from PIL import Image

    with Image.open(path, formats=_FORMATS) as opened:
        return opened.size


def to_rgb(image: "Image.Image") -> "Image.Image":
    """Convert any kind of image to RGB.

    Grey values of 10 to 16 bits are scaled to 8, where Pillow alone would clip them: white is the largest value of the
    fewest bits that hold the brightest pixel. What is transparent becomes white.

    Raises:
        UnreadableImageError: the pixels are floating point numbers, whose white is unknown.
    """
    from PIL import Image

    if image.mode == "F":
        raise UnreadableImageError("pixels are floating point numbers, not brightness values")
    if image.mode.startswith("I"):
        grey = np.clip(np.asarray(image), 0, 0xFFFF).astype(np.uint32)
        white = next(2**bits - 1 for bits in _GREY_BITS if grey.max(initial=0) < 2**bits)
        return Image.fromarray(((grey * 255 + white // 2) // white).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        colour = image.convert("RGBA")
        paper = Image.new("RGB", colour.size, _PAPER)
        paper.paste(colour, mask=colour.getchannel("A"))
        return paper
    return image.convert("RGB")


def grey(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return an image (height, width, 3) in RGB as a grey one, (height, width, 1)."""
    from PIL import Image

    return np.asarray(Image.fromarray(image).convert("L"))[:, :, None]


_MOST_BITS = 32
_MAGIC_AT, _MAGIC = 128, b"DICM"


def is_dicom(path: Path) -> bool:
    """Whether a file begins as DICOM files do, whatever its name; raise OSError if it cannot be read."""
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
