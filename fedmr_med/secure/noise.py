"""Random numbers from the operating system's randomness, through the same stream cipher as the masks."""

import os

import numpy as np
import numpy.typing as npt

from fedmr_med.secure import primitives


def uniforms(size: int) -> npt.NDArray[np.float64]:
    """Return independent numbers between 0 and 1, both excluded, that nobody can predict."""
    stream = primitives.mask(os.urandom(primitives.KEY), b"noise", size)
    # 53 random bits each, moved off zero, whose logarithm is infinite.
    made: npt.NDArray[np.float64] = ((stream >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    return made


def normals(shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return independent standard normal numbers that nobody can predict (Box and Muller)."""
    size = int(np.prod(shape))
    uniform = uniforms(2 * size)
    made: npt.NDArray[np.float64] = np.sqrt(-2 * np.log(uniform[:size])) * np.cos(2 * np.pi * uniform[size:])
    return made.reshape(shape)
