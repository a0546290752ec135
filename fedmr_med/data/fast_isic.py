"""FLamby's augmentation for ISIC2019 with every pixel touched twice: one warp, and one table of values.

Scale, rotation, flip, shear and crop are composed into a single affine map, brightness, contrast and normalisation
into one table per channel. The draws have the distribution of :func:`fedmr_med.data.transforms.isic_augmentation`,
not its numbers; an image is interpolated once where albumentations interpolates up to three times, and the border that
a shear of a tenth of a degree leaves black there is reflected here.
"""

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.data import transforms
from fedmr_med.data.transforms import Image, Pixels

_ANGLE, _BRIGHTNESS, _CONTRAST = 50.0, 0.15, 0.1
_SHEAR = -math.tan(math.radians(0.1))
_MOST_HOLES = 8

Affine = tuple[float, float, float, float, float, float]
"""The map (x, y) -> (a x + b y + c, d x + e y + f), as its six numbers."""


@dataclass(frozen=True)
class IsicFast:
    """Augments and normalises a colour image; ``train.augment: fast``."""

    image_size: int

    def __call__(self, image: Image, seed: int, out: Pixels | None = None) -> Pixels:
        """Turn (height, width, 3) uint8 into (3, image_size, image_size) float32."""
        size = self.image_size
        image = transforms.at_least(image, math.ceil(size / (1 - transforms.SCALE_LIMIT)), size)
        draw = random.Random(seed)
        crop = _crop(image, size, draw)
        if out is None:
            out = np.empty((3, size, size), dtype=np.float32)
        cv2 = transforms.opencv()
        plain = transforms.tables(transforms.IMAGENET)
        tables = _tables(draw) if draw.random() < 0.5 else plain
        for plane, table, row in zip(cv2.split(crop), tables, out, strict=True):
            cv2.LUT(plane, table, row)
        if draw.random() < 0.5:
            hole = transforms.hole_size(size)
            for _ in range(draw.randint(1, _MOST_HOLES)):
                top, left = (draw.randint(0, size - hole) for _ in range(2))
                out[:, top : top + hole, left : left + hole] = plain[:, 0, None, None]
        return out


def _crop(image: Image, size: int, draw: random.Random) -> Image:
    """Return a random square, warped. What comes first below is what an image goes through last."""
    height, width = image.shape[:2]
    factor = 1 + draw.uniform(-transforms.SCALE_LIMIT, transforms.SCALE_LIMIT) if draw.random() < 0.5 else 1.0
    tall, wide = int(height * factor), int(width * factor)
    angle = math.radians(draw.uniform(-_ANGLE, _ANGLE)) if draw.random() < 0.5 else 0.0
    flip = draw.randint(-1, 1) if draw.random() < 0.5 else None
    shear = _SHEAR if draw.random() < 0.5 else 0.0
    unshear = 1 / (1 - shear * shear)
    top, left = int((tall - size + 1) * draw.random()), int((wide - size + 1) * draw.random())
    x_sign, y_sign = -1.0 if flip in (1, -1) else 1.0, -1.0 if flip in (0, -1) else 1.0
    if factor == 1 and not angle and not shear:
        # Nothing is between two pixels: cut it out, and turn it around.
        top = height - size - top if y_sign < 0 else top
        left = width - size - left if x_sign < 0 else left
        square = image[top : top + size, left : left + size]
        return np.ascontiguousarray(square[:: int(y_sign), :: int(x_sign)])
    x, y = (wide - 1) / 2, (tall - 1) / 2
    cos, sin = math.cos(angle), math.sin(angle)
    steps: tuple[Affine, ...] = (
        (1, 0, left - x, 0, 1, top - y),
        (unshear, -shear * unshear, 0.0, -shear * unshear, unshear, 0.0),
        (x_sign, 0, 0, 0, y_sign, 0),
        (cos, -sin, 0, sin, cos, 0),
        (width / wide, 0, (width - 1) / 2, 0, height / tall, (height - 1) / 2),
    )
    a, b, c, d, e, f = steps[0]
    for p, q, r, s, t, u in steps[1:]:
        above = p * a + q * d, p * b + q * e, p * c + q * f + r
        d, e, f = s * a + t * d, s * b + t * e, s * c + t * f + u
        a, b, c = above
    cv2 = transforms.opencv()
    warped: Image = cv2.warpAffine(
        image,
        np.array(((a, b, c), (d, e, f))),
        (size, size),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REFLECT_101,
    )
    return warped


def _tables(draw: random.Random) -> npt.NDArray[Any]:
    """Return the normalised value of each byte at a random brightness and contrast, (3, 256)."""
    brightness, contrast = draw.uniform(-_BRIGHTNESS, _BRIGHTNESS), 1 + draw.uniform(-_CONTRAST, _CONTRAST)
    values = np.arange(256, dtype=np.float32) * np.float32(contrast) + np.float32(255 * brightness)
    return transforms.normalised(np.clip(values, 0, 255, out=values), transforms.IMAGENET)
