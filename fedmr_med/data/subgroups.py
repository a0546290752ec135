"""Subgroups of images: by columns of a hospital's own table that the job names, such as sex, age or device."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fedmr_med.data.base import Fold

_BAND = re.compile(r"(\d+)(?:-(\d+)|\+)")


def members(fold: Fold, levels: Sequence[tuple[str, str]]) -> npt.NDArray[np.bool_]:
    """Return which items of a fold are of which level, (n, S), of one at most of each column.

    Args:
        levels: column and level, as :attr:`fedmr_med.config.TaskConfig.levels` lists them.
    """
    if fold.records is None:
        return np.zeros((len(fold), len(levels)), dtype=np.bool_)
    rows = [of_levels(record.attributes, levels) for record in fold.records]
    return np.array(rows, dtype=np.bool_).reshape(len(fold), len(levels))


def of_levels(attributes: Mapping[str, str], levels: Sequence[tuple[str, str]]) -> list[bool]:
    """Return which levels an image is of, by what its table says: the first of each column that fits."""
    found: dict[str, str] = {}
    for column, level in levels:
        if is_of(attributes.get(column.lower(), ""), level):
            found.setdefault(column, level)
    return [found.get(column) == level for column, level in levels]


def is_of(value: str, level: str) -> bool:
    """Whether a value of a table is of a level: its text, in any case, or a number of a band like 40-59 or 60+."""
    if value.casefold() == level.casefold():
        return True
    band = _BAND.fullmatch(level)
    try:
        number = float(value) if band else float("nan")
    except ValueError:
        return False
    return band is not None and int(band[1]) <= number < (int(band[2]) + 1 if band[2] else float("inf"))
