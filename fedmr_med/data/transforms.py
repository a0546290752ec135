"""From a decoded image to what the network sees.

A transform is a picklable callable ``(image, seed, out=None) -> array``. Its result depends on image and seed alone,
so a batch is the same in whichever process and order it is made. It goes into ``out`` if that is given: the row of a
batch, which saves a copy.
"""

import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import ConfigError
from fedmr_med.registry import Registry

Image = npt.NDArray[np.uint8]
Pixels = npt.NDArray[np.float32]
Augment = bool | Literal["fast"]

# FLamby prepares images with a shorter edge of 224 pixels for crops of 200, and drops holes of 16 pixels.
_FLAMBY_CROP, _FLAMBY_EDGE, _FLAMBY_HOLE = 200, 224, 16
SCALE_LIMIT = 0.07

Scale = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of values in [0, 1] that a transform normalises with, of each channel or of all."""
IMAGENET: Scale = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HALF: Scale = (0.5,), (0.5,)
_UNIT: Scale = (0.0,), (1.0,)


class Transform(Protocol):
    """A picklable function of an image, or a text, and a seed."""

    def __call__(self, image: Image, seed: int, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Turn (height, width, channels) uint8 into (channels, image_size, image_size) float32; texts stay."""


def edge_for(image_size: int) -> int:
    """Return the shorter edge, in pixels, to which images are decoded for crops of ``image_size``."""
    return round(image_size * _FLAMBY_EDGE / _FLAMBY_CROP)


def build(name: str, *, train: Augment, image_size: int) -> Transform:
    """Return a transform by name.

    Args:
        name: ``isic``: FLamby's for ISIC2019; ``crop_flip``: pad by 4, crop and flip, as usual for CIFAR;
            ``plain``: normalisation only; ``unit``, ``reflect_crop_flip`` and ``crop_flip_rotate``: what the FedMR
            authors' code does with FMNIST, CIFAR10 and CIFAR100; ``imagenet``: scaled to the image size, grey as
            colour, as networks with ImageNet's weights expect it; ``none``: nothing at all, for texts.
        train: with random augmentation, or the fixed transform of the test fold; ``fast`` is the same augmentation
            in fewer passes, where there is such a thing (:mod:`fedmr_med.data.fast_isic`).
        image_size: edge of the square that comes out, in pixels.

    Raises:
        ConfigError: there is no transform of that name.
    """
    return TRANSFORMS.get(name, "task.transform")(image_size, train)


def normalisation(name: str, channels: int) -> dict[str, list[float]]:
    """Return mean and standard deviation per channel, of values in [0, 1], that a transform normalises with.

    Empty for a transform that does not normalise.

    Raises:
        ConfigError: there is no transform of that name, or it is for images with another number of channels.
    """
    scale: Scale | None = getattr(build(name, train=False, image_size=1), "scale", None)
    if scale is None:
        return {}
    if len(scale[0]) not in (1, channels):
        raise ConfigError(
            f"task.channels is {channels}, and the transform {name} makes images of {len(scale[0])}: take another "
            "task.transform, such as crop_flip or plain.",
            code="config.conflict",
            key="task.channels",
        )
    mean, std = (list(numbers) * (channels if len(numbers) == 1 else 1) for numbers in scale)
    return {"mean": mean, "std": std}


def unchanged(image: Image, seed: int, out: Image | None = None) -> Image:
    """Return the item itself; ``seed`` is not used."""
    if out is None:
        return image
    np.copyto(out, image)
    return out


@dataclass(frozen=True)
class IsicTrain:
    """FLamby's augmentation for ISIC2019, by albumentations.

    FLamby draws the number of dropped holes once per dataset; here it is drawn for each image.
    """

    image_size: int

    def __call__(self, image: Image, seed: int, out: Pixels | None = None) -> Pixels:
        """Augment and normalise a colour image."""
        image = at_least(image, math.ceil(self.image_size / (1 - SCALE_LIMIT)), self.image_size)
        augment = isic_augmentation(self.image_size)
        # albumentations 1.4 draws everything from Python's global generator.
        before = random.getstate()
        random.seed(seed)
        try:
            augmented = augment(image=image)["image"]
        finally:
            random.setstate(before)
        return _normalise(augmented, IMAGENET, out)


@dataclass(frozen=True)
class IsicTest:
    """FLamby's test transform for ISIC2019: the central square, normalised. Equal to FLamby's bit for bit."""

    image_size: int
    scale: ClassVar[Scale] = IMAGENET

    def __call__(self, image: Image, seed: int, out: Pixels | None = None) -> Pixels:
        """Crop and normalise a colour image; ``seed`` is not used."""
        image = at_least(image, self.image_size, self.image_size)
        return _normalise(_centre(image, self.image_size), self.scale, out)


@dataclass(frozen=True)
class CropFlip:
    """Pad by four pixels, crop a random square, flip it left to right half of the time.

    Attributes:
        padding: pixels at each edge.
        border: what they show: black, or the image mirrored.
        degrees: then rotate by up to so much either way.
    """

    image_size: int
    padding: int = 4
    border: Literal["constant", "reflect"] = "constant"
    degrees: float = 0.0

    def __call__(self, image: Image, seed: int, out: Pixels | None = None) -> Pixels:
        """Augment and normalise an image of one or three channels."""
        generator = np.random.default_rng(seed)
        image = np.pad(image, ((self.padding, self.padding), (self.padding, self.padding), (0, 0)), mode=self.border)
        image = _pad_to(image, self.image_size)
        top, left = (int(generator.integers(0, edge - self.image_size + 1)) for edge in image.shape[:2])
        crop = image[top : top + self.image_size, left : left + self.image_size]
        crop = crop[:, ::-1] if generator.random() < 0.5 else crop
        if self.degrees:
            crop = _rotated(crop, generator.uniform(-self.degrees, self.degrees))
        return _normalise(crop, _HALF, out)


@dataclass(frozen=True)
class Plain:
    """The central square, normalised; a smaller image gets a black border."""

    image_size: int
    scale: Scale = _HALF

    def __call__(self, image: Image, seed: int, out: Pixels | None = None) -> Pixels:
        """Crop and normalise an image of one or three channels; ``seed`` is not used."""
        return _normalise(_centre(_pad_to(image, self.image_size), self.image_size), self.scale, out)

    def together(self, images: Image) -> Pixels:
        """Return what single calls give for images (n, height, width, channels), in a tenth of the time."""
        if min(images.shape[1:3]) < self.image_size:
            return np.stack([self(image, 0) for image in images])
        top, left = ((edge - self.image_size) // 2 for edge in images.shape[1:3])
        crops = images[:, top : top + self.image_size, left : left + self.image_size]
        (table,) = tables(self.scale)
        return np.ascontiguousarray(table[crops].transpose(0, 3, 1, 2))


@dataclass(frozen=True)
class ImageNet:
    """The whole image scaled to a square, grey as colour, normalised with ImageNet's mean and standard deviation."""

    image_size: int
    scale: ClassVar[Scale] = IMAGENET

    def __call__(self, image: Image, seed: int, out: Pixels | None = None) -> Pixels:
        """Scale and normalise an image of one or three channels; ``seed`` is not used."""
        scaled = opencv().resize(image, (self.image_size, self.image_size))
        colour = np.broadcast_to(scaled.reshape(self.image_size, self.image_size, -1), (*scaled.shape[:2], 3))
        return _normalise(colour, self.scale, out)


def _isic(image_size: int, augment: Augment) -> Transform:
    if augment == "fast":
        from fedmr_med.data.fast_isic import IsicFast

        return IsicFast(image_size)
    return IsicTrain(image_size) if augment else IsicTest(image_size)


def _crop_flip(**options: Any) -> Callable[[int, Augment], Transform]:
    return lambda image_size, train: CropFlip(image_size, **options) if train else Plain(image_size)


TRANSFORMS: Registry[Callable[[int, Augment], Transform]] = Registry("transform")
"""Makers of transforms, called with the image size and whether, or how, to augment."""

TRANSFORMS.add("isic", _isic)
TRANSFORMS.add("crop_flip", _crop_flip())
TRANSFORMS.add("plain", lambda image_size, train: Plain(image_size))
TRANSFORMS.add("unit", lambda image_size, train: Plain(image_size, _UNIT))
TRANSFORMS.add("reflect_crop_flip", _crop_flip(border="reflect"))
TRANSFORMS.add("crop_flip_rotate", _crop_flip(degrees=15.0))
TRANSFORMS.add("imagenet", lambda image_size, train: ImageNet(image_size))
TRANSFORMS.add("none", lambda image_size, train: unchanged)


@lru_cache
def isic_augmentation(image_size: int) -> Any:
    """Return FLamby's training augmentation for a crop size, without the normalisation."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    import albumentations

    opencv()
    hole = hole_size(image_size)
    return albumentations.Compose(
        [
            albumentations.RandomScale(SCALE_LIMIT),
            albumentations.Rotate(50),
            albumentations.RandomBrightnessContrast(0.15, 0.1),
            albumentations.Flip(p=0.5),
            albumentations.Affine(shear=0.1),
            albumentations.RandomCrop(image_size, image_size),
            albumentations.CoarseDropout(
                num_holes_range=(1, 8), hole_height_range=(hole, hole), hole_width_range=(hole, hole)
            ),
        ]
    )


def hole_size(image_size: int) -> int:
    """Return the edge, in pixels, of a hole that the augmentation drops from a crop."""
    return max(1, round(_FLAMBY_HOLE * image_size / _FLAMBY_CROP))


@lru_cache(maxsize=1)
def opencv() -> Any:
    """Return OpenCV, kept to the calling thread: the images are small and the processes many."""
    import cv2

    cv2.setNumThreads(0)
    return cv2


def _centre(image: Image, size: int) -> Image:
    top, left = ((edge - size) // 2 for edge in image.shape[:2])
    return image[top : top + size, left : left + size]


def _normalise(image: Image, scale: Scale, out: Pixels | None) -> Pixels:
    """Return (x / 255 - mean) / std, channels first.

    A table of the 256 values per channel gives the same bits as albumentations' ``Normalize``, about ten times
    faster.
    """
    cv2 = opencv()
    if out is None:
        out = np.empty((image.shape[2], *image.shape[:2]), dtype=np.float32)
    for channel, table in enumerate(np.broadcast_to(tables(scale), (len(out), 256))):
        cv2.LUT(np.ascontiguousarray(image[:, :, channel]), table, out[channel])
    return out


@lru_cache
def tables(scale: Scale) -> Pixels:
    """Return the normalised value of each byte, (1 or channels, 256)."""
    return normalised(np.arange(256, dtype=np.float32), scale)


def normalised(values: Pixels, scale: Scale) -> Pixels:
    """Return values (n,) in [0, 255], normalised, (1 or channels, n)."""
    mean, std = (np.array(numbers, dtype=np.float32)[:, None] * np.float32(255) for numbers in scale)
    found: Pixels = (values - mean) * np.reciprocal(std)
    return found


def at_least(image: Image, smallest: int, image_size: int) -> Image:
    """Scale an image up if its shorter edge is below ``smallest``, to the edge that crops of ``image_size`` need."""
    height, width = image.shape[:2]
    shorter = min(height, width)
    if shorter >= smallest:
        return image
    edge = max(smallest, edge_for(image_size))
    size = (round(width * edge / shorter), round(height * edge / shorter))
    scaled: Image = opencv().resize(image, size)
    return scaled


def _rotated(image: Image, degrees: float) -> Image:
    """Rotate an image around its centre, with black where nothing was."""
    height, width, channels = image.shape
    turn = opencv().getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), degrees, 1.0)
    rotated: Image = opencv().warpAffine(np.ascontiguousarray(image), turn, (width, height), flags=0)  # nearest
    return rotated.reshape(height, width, channels)


def _pad_to(image: Image, image_size: int) -> Image:
    """Add a black border around an image that is smaller than ``image_size``."""
    missing = [max(0, image_size - edge) for edge in image.shape[:2]]
    if not any(missing):
        return image
    return np.pad(image, [(m // 2, m - m // 2) for m in missing] + [(0, 0)])
