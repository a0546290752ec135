"""What is done to a photograph before it is decoded for a network: ``task.preparation`` of a job.

``fedmr-med data prepare-isic`` does it once, on disk. For pictures that come as they are, sites and everyone who uses
the model do the same in memory, through the same bytes, so that a network never sees what it was not trained on.
"""

import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedmr_med.config import PreparationConfig
from fedmr_med.errors import DataError

if TYPE_CHECKING:
    from PIL import Image


RECORD = "preparation.json"
"""File in a prepared folder that says how its images were made."""


def jpeg_of(image: "Image.Image", preparation: PreparationConfig) -> bytes:
    """Return the JPEG file that a picture in RGB becomes."""
    from PIL import Image

    scaled = flamby_resize(image, preparation.edge)
    content = BytesIO()
    Image.fromarray(shades_of_grey(np.asarray(scaled))).save(content, format="JPEG")
    return content.getvalue()


def check_prepared(folder: Path, preparation: PreparationConfig | None) -> None:
    """Refuse a prepared folder that says it was made with another edge than a job's.

    Raises:
        DataError: so; folders of other programs say nothing and are taken as they are.
    """
    if preparation is None or not (folder / RECORD).is_file():
        return
    try:
        edge = json.loads((folder / RECORD).read_text(encoding="utf-8"))["edge"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DataError(f"{folder / RECORD} cannot be read.", code="file.unreadable") from e
    if edge != preparation.edge:
        raise DataError(
            f"{folder} was prepared with an edge of {edge} pixels, the job has {preparation.edge}: set "
            "task.preparation.edge of the job, or prepare the images again into another folder.",
            code="data.other-settings",
            key="task.preparation.edge",
        )


def flamby_resize(image: "Image.Image", edge: int) -> "Image.Image":
    """Scale an image to a shorter edge of ``edge`` pixels, with FLamby's rounding."""
    from PIL import Image

    ratio = edge / min(image.size)
    return image.resize((int(image.width * ratio), int(image.height * ratio)), Image.Resampling.BILINEAR)


def shades_of_grey(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Remove the colour of the light: scale each channel by its Minkowski norm (Finlayson and Trezzi, 2004).

    The norm is the sixth. FLamby lets values above 255 wrap round to 0; here they become 255.

    Args:
        image: (height, width, 3).
    """
    pixels = image.astype(np.float32)
    light = np.power(np.mean(np.power(pixels, 6), axis=(0, 1)), 1 / 6)
    length = np.sqrt(np.sum(np.power(light, 2.0)))
    if length == 0:  # an all-black image has no light to correct
        return image
    # A channel without any light stays black, whatever it is multiplied with.
    gain = 1 / (np.maximum(light / length, np.finfo(np.float32).tiny) * np.sqrt(3))
    corrected: npt.NDArray[np.uint8] = np.clip(pixels * gain, 0, 255).astype(np.uint8)
    return corrected
