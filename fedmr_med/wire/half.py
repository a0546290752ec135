"""Arrays as float16, with one power of two per array: half the bytes, whatever the size of the values.

Plain float16 has 11 bits of precision between 6e-5 and 65504 only; the biases and gains of a network are often
smaller. Each array is therefore scaled so that its largest value lies just below 2^15, which float32 can undo
exactly. The rounding error of an array is then below 2^-11 of its norm, or 0.05 %.
"""

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from fedmr_med.arrays import Arrays

MAX_EXPONENT = 200
_TOP = 15  # scaled values stay below 2^15; float16 ends at 2^16


def pack(arrays: Arrays, names: Collection[str]) -> tuple[Arrays, dict[str, int]]:
    """Return the arrays with those in ``names`` as float16, and the exponents to undo their scaling.

    Packing what :func:`unpack` returned gives the same again, bit for bit.
    """
    packed, exponents = dict(arrays), {}
    for name in names:
        array = arrays[name]
        exponents[name] = exponent = _exponent(array)
        packed[name] = np.asarray(np.ldexp(array, -exponent), dtype=np.float16)
    return packed, exponents


def unpack(arrays: Arrays, exponents: Mapping[str, int]) -> Arrays:
    """Return the arrays with those that have an exponent as float32 again.

    Raises:
        ValueError: the exponents are not those of the float16 arrays.
    """
    halves = {name for name, array in arrays.items() if array.dtype == np.float16}
    if halves != set(exponents):
        raise ValueError(f"{sorted(halves ^ set(exponents))[0]!r} is float16 without an exponent, or the reverse")
    unpacked = dict(arrays)
    for name, exponent in exponents.items():
        if type(exponent) is not int or abs(exponent) > MAX_EXPONENT:
            raise ValueError(f"{name!r} has the exponent {exponent!r}")
        unpacked[name] = np.asarray(np.ldexp(arrays[name].astype(np.float32), exponent))
    return unpacked


def _exponent(array: npt.NDArray[np.floating]) -> int:
    """Return the exponent that brings the largest value, once rounded to float16, below 2^15."""
    largest = float(np.abs(array).max(initial=0))
    if largest == 0 or not np.isfinite(largest):
        return 0
    # Rounding first: 1.9999 becomes 2, which belongs to the next power.
    mantissa, exponent = np.frexp(largest)
    return int(exponent) - _TOP + int(np.float16(mantissa) == 1)
