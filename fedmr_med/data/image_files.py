"""From image files to batches for a model, one file at a time: what cannot be read is named and left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.config import TaskConfig
from fedmr_med.data import transforms
from fedmr_med.data.images import SUFFIXES, UnreadableImageError, decode, grey, image_files
from fedmr_med.data.manifest import image_path
from fedmr_med.data.tables import read_table
from fedmr_med.data.transforms import edge_for
from fedmr_med.errors import ConfigError, DataError

_BATCH = 32
SMALL = 32
"""Images for a benchmark of this edge and less are the whole crop; others have a margin around it, as at the sites."""


@dataclass(frozen=True)
class ImageFiles:
    """Image files, in order, by their names relative to the folder ``root``."""

    root: Path
    names: tuple[str, ...]


def find_images(place: Path) -> ImageFiles:
    """Return the images of a folder and its subfolders by name, those of a manifest in its order, or a single file.

    Raises:
        DataError: there is no such place, or it has no image.
    """
    if place.is_dir():
        images = ImageFiles(place, tuple(image_files(place)))
    elif place.suffix.lower() in (".csv", ".tsv", ".txt"):
        try:
            names = tuple(image_path(record["image"]) for _, record in read_table(place, ("image",)))
        except ValueError as e:
            raise DataError(f"{place}: {e}.", code="data.row", key="image") from e
        images = ImageFiles(place.parent, names)
    elif place.is_file():
        images = ImageFiles(place.parent, (place.name,))
    else:
        raise DataError(
            f"{place} does not exist; give a folder of images, a manifest or an image.", code="file.missing"
        )
    if not images.names:
        raise DataError(f"{place} has no images ({', '.join(SUFFIXES)}).", code="data.empty")
    return images


@dataclass(frozen=True)
class ImageReader:
    """Reads image files as the sites of a task do: its preparation, unless they are prepared, then its transform."""

    task: TaskConfig
    prepared: bool = False

    def pixels(self, path: Path) -> npt.NDArray[np.uint8]:
        """Return an image (height, width, channels) as the transform takes it.

        Raises:
            UnreadableImageError: it cannot be used; the message says why.
            ConfigError: the model is not for image files.
        """
        size = self.task.image_size
        if self.task.transform == "none":
            raise ConfigError(
                f"This model takes what a dataset of the site's own gives ({self.task.dataset}), such as volumes, not "
                "image files: call its network on tensors from Python.",
                code="model.not-for-images",
                key="task.transform",
            )
        small = size <= SMALL and self.task.split is not None
        preparation = None if self.prepared else self.task.preparation
        image = decode(path, size if small else edge_for(size), preparation)
        return grey(image) if self.task.channels == 1 else image

    def __call__(self, path: Path) -> torch.Tensor:
        """Return an image as a tensor (channels, image_size, image_size); raises as :meth:`pixels` does."""
        transform = transforms.build(self.task.transform, train=False, image_size=self.task.image_size)
        return torch.from_numpy(transform(self.pixels(path), 0))

    def batches(
        self, root: Path, names: Sequence[str]
    ) -> Iterator[tuple[list[str], torch.Tensor | None, dict[str, str]]]:
        """Yield names and images (B, channels, image_size, image_size), and why others of the batch cannot be read.

        A batch without a readable image has None in place of images.
        """
        for start in range(0, len(names), _BATCH):
            images: dict[str, torch.Tensor] = {}
            errors: dict[str, str] = {}
            for name in names[start : start + _BATCH]:
                try:
                    images[name] = self(root / name)
                except UnreadableImageError as e:
                    errors[name] = str(e)
                except MemoryError:
                    errors[name] = "there is too little memory here to decode it"
            yield list(images), torch.stack(list(images.values())) if images else None, errors
