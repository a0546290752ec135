"""Reading one image file, whatever its format."""

import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedmr_med.config import PreparationConfig
from fedmr_med.data.bounds import UnreadableImageError, check_size
from fedmr_med.data.dicom import is_dicom, read_dicom
from fedmr_med.data.preparation import jpeg_of

if TYPE_CHECKING:
    from PIL import Image

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
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _is_image(path))
    return [path.relative_to(folder).as_posix() for path in files]


def _is_image(path: Path) -> bool:
    # Scanners and archives write DICOM files without a suffix.
    return path.suffix.lower() in SUFFIXES or (not path.suffix and is_dicom(path))


def decode(path: Path, edge: int, preparation: PreparationConfig | None = None) -> npt.NDArray[np.uint8]:
    """Read an image upright, in RGB, with a shorter edge of ``edge`` pixels.

    An image whose shorter edge has that length, or one pixel less by FLamby's rounding, keeps its pixels.

    Args:
        path: the file.
        edge: shorter edge in pixels.
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
        pixels = re.search(r"\d+", str(e))
        size = f"{int(pixels.group()) / 1e6:.0f} million pixels" if pixels else "its size"
        raise UnreadableImageError(f"{size} are too many for a picture of a lesion; make it smaller") from e
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
