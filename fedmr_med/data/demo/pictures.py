"""Drawing lesion-like pictures for the demo.

The eight classes differ by outline and structure, and a little by colour; skin, place, size, rotation, hair, blur and
each centre's light vary from picture to picture.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_TAU = 2 * np.pi
_DRAWS = 200  # random numbers per picture; more than any class needs
_LIGHT_SKIN, _DARK_SKIN = np.array([[0.95, 0.78, 0.70], [0.62, 0.44, 0.35]], dtype=np.float32)

# Colour of each class (RGB). A picture has only a part of it, the rest is drawn from the same range for all classes.
_OWN_COLOUR = 0.72
_LESION = np.array(
    [
        [0.22, 0.18, 0.19],  # MEL: blue-black
        [0.42, 0.25, 0.14],  # NV: brown
        [0.60, 0.44, 0.52],  # BCC: pearly lilac
        [0.76, 0.38, 0.30],  # AK: red
        [0.46, 0.40, 0.22],  # BKL: yellow-brown
        [0.68, 0.50, 0.38],  # DF: tan
        [0.56, 0.14, 0.22],  # VASC: crimson
        [0.70, 0.46, 0.24],  # SCC: orange
    ],
    dtype=np.float32,
)
# How the structures in a lesion change its red, green and blue, as exponents. The lesion around them changes the
# other way, so that its mean colour says nothing about them.
_STRUCTURE = np.array(
    [
        [-1.6, -1.5, -1.0],  # MEL: blue-black blotches
        [-1.2, -1.2, -1.0],  # NV: dark network
        [-1.5, -1.0, -0.4],  # BCC: blue-grey nests
        [0.6, 1.2, 1.3],  # AK: white scales
        [0.9, 0.8, 0.6],  # BKL: yellow ridges
        [0.6, 0.9, 1.0],  # DF: a pale scar
        [-0.6, -1.8, -1.5],  # VASC: dark red lacunae
        [0.9, 0.9, 0.6],  # SCC: yellow streaks of keratin
    ],
    dtype=np.float32,
)
# Light of each centre: gain of red, green and blue, and how much darker the corners are.
_LIGHT = np.array(
    [
        [1.00, 1.00, 1.00, 0.10],
        [0.96, 1.00, 1.04, 0.45],
        [1.04, 1.00, 0.95, 0.20],
        [0.92, 0.94, 0.98, 0.05],
        [1.05, 0.97, 0.97, 0.30],
        [0.90, 0.96, 1.06, 0.35],
    ],
    dtype=np.float32,
)


def draw(label: int, center: int, generators: list[np.random.Generator], edge: int) -> npt.NDArray[np.uint8]:
    """Draw one picture per generator.

    Args:
        label: class of all of them, in the order of Fed-ISIC2019.
        center: whose light it is, 0 to 5.
        generators: n sources of randomness.
        edge: of the square pictures, in pixels. The same generators give the same scene at any size.

    Returns:
        (n, edge, edge, 3) uint8, RGB.
    """
    draws = _Draws(np.stack([generator.random(_DRAWS, dtype=np.float32) for generator in generators]))
    noise = np.stack([generator.standard_normal((edge, edge), dtype=np.float32) for generator in generators])
    axis = np.linspace(-1, 1, edge, dtype=np.float32)
    column, row = axis[None, None, :], axis[None, :, None]

    turn, size = draws.one(0, _TAU), draws.one(0.35, 0.8)
    dx, dy = column - draws.one(-0.4, 0.4), row - draws.one(-0.4, 0.4)
    stretch = draws.one(0.85, 1.18)
    x = (np.cos(turn) * dx + np.sin(turn) * dy) / size * stretch
    y = (np.cos(turn) * dy - np.sin(turn) * dx) / size / stretch
    x, y = x + 0.15 * _smooth_noise(draws, edge), y + 0.15 * _smooth_noise(draws, edge)  # nothing in skin is regular
    canvas = _Canvas(x, y, np.hypot(x, y), np.arctan2(y, x))
    cover, structure = _PATTERNS[label](canvas, draws)

    tone = draws.one(0, 1)[..., None] ** 1.5
    skin = _LIGHT_SKIN + (_DARK_SKIN - _LIGHT_SKIN) * tone
    skin = skin * (1 + 0.06 * _smooth_noise(draws, edge)[..., None])
    common = np.concatenate([draws.one(0.40, 0.62), draws.one(0.20, 0.38), draws.one(0.14, 0.32)], axis=-1)[:, :, None]
    pigment = (_OWN_COLOUR * _LESION[label] + (1 - _OWN_COLOUR) * common) * draws.one(0.6, 1.3)[..., None]
    mean = (structure * cover).mean(axis=(1, 2), keepdims=True) / cover.mean(axis=(1, 2), keepdims=True)
    pigment = pigment * np.exp(_STRUCTURE[label] * (structure - mean)[..., None])
    image = skin + (pigment - skin) * cover[..., None]

    image = image * (1 - 0.6 * _hairs(column, row, draws))[..., None]
    image = image * _light(center, column, row, draws)
    return _photograph(image, draws.one(0.2, 0.6).ravel(), noise)


@dataclass
class _Draws:
    """Uniform random numbers of n pictures, handed out column by column."""

    columns: Array

    def between(self, low: float, high: float, count: int = 1) -> Array:
        """Return (n, count, 1, 1) numbers between ``low`` and ``high``, one row per picture."""
        taken, self.columns = self.columns[:, :count], self.columns[:, count:]
        return (low + (high - low) * taken)[:, :, None, None]

    def one(self, low: float, high: float) -> Array:
        """Return (n, 1, 1) numbers between ``low`` and ``high``."""
        return self.between(low, high)[:, 0]


@dataclass
class _Canvas:
    """Coordinates of n lesions, turned and scaled to them: the typical outline is the unit circle.

    Attributes:
        x, y, radius, angle: (n, edge, edge).
    """

    x: Array
    y: Array
    radius: Array
    angle: Array

    def distance(self, x: Array, y: Array) -> Array:
        """Return the distance of each pixel to points (n, k, 1, 1), the nearest of the k."""
        squares = (self.x[:, None] - x) ** 2 + (self.y[:, None] - y) ** 2
        nearest: Array = np.sqrt(squares.min(axis=1))
        return nearest


def _photograph(image: Array, blur: Array, noise: Array) -> npt.NDArray[np.uint8]:
    """Blur each picture, add the grain of a sensor and round to bytes; ``blur`` is in 54ths of the edge."""
    import cv2

    edge = image.shape[1]
    pictures = np.empty(image.shape, dtype=np.uint8)
    for index, picture in enumerate(image.astype(np.float32)):
        soft = cv2.GaussianBlur(picture, (0, 0), float(blur[index]) * edge / 54) + 0.012 * noise[index][..., None]
        pictures[index] = np.clip(255 * soft + 0.5, 0, 255).astype(np.uint8)
    return pictures


def _light(center: int, column: Array, row: Array, draws: _Draws) -> Array:
    """Return the light that falls on each pixel: the centre's colour cast and dark corners, a little varied."""
    gain = _LIGHT[center, :3] * draws.one(0.85, 1.08)[..., None]
    corners = _LIGHT[center, 3] * draws.one(0.7, 1.3)
    fall: Array = gain * (1 - corners * (column**2 + row**2) / 2)[..., None]
    return fall


def _hairs(column: Array, row: Array, draws: _Draws) -> Array:
    """Return how much of each pixel hair covers: up to four bent hairs per picture, often none."""
    turn, offset = draws.between(0, _TAU, 4), draws.between(-0.9, 0.9, 4)
    bend, width = draws.between(-0.5, 0.5, 4), draws.between(0.014, 0.026, 4)
    present = draws.between(0, 1, 4) < 0.3
    along = np.cos(turn) * column[:, None] + np.sin(turn) * row[:, None]
    across = np.cos(turn) * row[:, None] - np.sin(turn) * column[:, None]
    hairs: Array = (present * np.exp(-(((across - offset - bend * along**2) / width) ** 2))).max(axis=1)
    return hairs


def _smooth_noise(draws: _Draws, edge: int, cells: int = 5) -> Array:
    """Return cloudy noise in [-1, 1], (n, edge, edge): random values on a coarse grid, interpolated."""
    grid = draws.between(-1, 1, cells * cells).reshape(-1, cells, cells)
    position = np.linspace(0, cells - 1, edge, dtype=np.float32)
    weights = np.maximum(0, 1 - np.abs(position[:, None] - np.arange(cells, dtype=np.float32)))
    noise: Array = weights @ grid @ weights.T
    return noise


def _inside(distance: Array, softness: float) -> Array:
    """Return coverage in [0, 1]: 1 where ``distance`` to the outline is negative, falling off over ``softness``."""
    coverage: Array = 1 / (1 + np.exp(np.clip(distance / softness, -30, 30)))
    return coverage


def _wave(canvas: _Canvas, draws: _Draws, lobes: tuple[int, ...], depth: float) -> Array:
    """Return an outline: the radius in each direction, waved by the given numbers of lobes."""
    outline = np.ones_like(canvas.angle)
    for count in lobes:
        outline += depth * draws.one(0.6, 1) * np.cos(count * canvas.angle + draws.one(0, _TAU))
    return outline


def _ring(draws: _Draws, inner: float, outer: float, jitter: float, count: int = 5) -> tuple[Array, Array]:
    """Return x and y of points around the middle, evenly spaced but for ``jitter`` (radians), (n, count, 1, 1)."""
    spaced = np.linspace(0, _TAU, count, endpoint=False, dtype=np.float32)[:, None, None]
    angle = draws.between(0, _TAU) + spaced + draws.between(-jitter, jitter, count)
    radius = draws.between(inner, outer, count)
    return radius * np.cos(angle), radius * np.sin(angle)


def _melanoma(canvas: _Canvas, draws: _Draws) -> tuple[Array, Array]:
    """Ragged, lopsided outline with dark blotches off the middle."""
    outline = _wave(canvas, draws, (1, 2, 3, 5, 7), 0.15)
    blotches = canvas.distance(draws.between(-0.7, 0.7, 3), draws.between(-0.7, 0.7, 3))
    return _inside(canvas.radius - outline, 0.05), _inside(blotches - 0.3, 0.06)


def _nevus(canvas: _Canvas, draws: _Draws) -> tuple[Array, Array]:
    """Round, smooth outline, even colour with a network."""
    frequency = draws.one(8, 10)
    network = np.maximum(np.cos(frequency * canvas.x), np.cos(frequency * canvas.y))
    return _inside(canvas.radius - 0.95, 0.06), 0.9 * _inside(0.55 - network, 0.12)


def _basal_cell(canvas: _Canvas, draws: _Draws) -> tuple[Array, Array]:
    """Pale plaque with dark round nests set in a ring."""
    nests = canvas.distance(*_ring(draws, 0.5, 0.75, jitter=0.25))
    return _inside(canvas.radius - 1, 0.10), _inside(nests - 0.22, 0.03)


def _keratosis(canvas: _Canvas, draws: _Draws) -> tuple[Array, Array]:
    """No clear border, many white scales."""
    scales = canvas.distance(draws.between(-0.8, 0.8, 14), draws.between(-0.8, 0.8, 14))
    return _inside(canvas.radius - 0.9, 0.18), _inside(scales - 0.1, 0.03)


def _seborrheic(canvas: _Canvas, draws: _Draws) -> tuple[Array, Array]:
    """Sharp outline, parallel ridges like a fingerprint."""
    frequency = draws.one(9, 12)
    ridges = np.cos(frequency * canvas.y + 0.8 * np.cos(2 * canvas.x + draws.one(0, _TAU)))
    return _inside(canvas.radius - _wave(canvas, draws, (2, 3), 0.05), 0.03), _inside(0.1 - ridges, 0.15)


def _dermatofibroma(canvas: _Canvas, draws: _Draws) -> tuple[Array, Array]:
    """A pale scar in the middle of a dark ring."""
    return _inside(canvas.radius - 0.95, 0.08), _inside(canvas.radius - draws.one(0.35, 0.55), 0.05)


def _vascular(canvas: _Canvas, draws: _Draws) -> tuple[Array, Array]:
    """A cluster of separate round lacunae."""
    lobes = canvas.distance(*_ring(draws, 0.6, 0.75, jitter=0))
    lacunae = np.maximum(_inside(lobes - 0.33, 0.03), _inside(canvas.radius - 0.25, 0.03))
    return np.maximum(lacunae, 0.25 * _inside(canvas.radius - 1, 0.08)), lacunae


def _squamous(canvas: _Canvas, draws: _Draws) -> tuple[Array, Array]:
    """Streaks that run outwards from a pale core, like a star."""
    streaks = np.cos(9 * canvas.angle + draws.one(0, _TAU))
    core = _inside(canvas.radius - 0.3, 0.04)
    return _inside(canvas.radius - 0.95 - 0.1 * streaks, 0.06), np.maximum(core, _inside(0.2 - streaks, 0.2))


_PATTERNS: tuple[Callable[[_Canvas, _Draws], tuple[Array, Array]], ...] = (
    _melanoma,
    _nevus,
    _basal_cell,
    _keratosis,
    _seborrheic,
    _dermatofibroma,
    _vascular,
    _squamous,
)
