"""What somebody who sees a site's releases can read from them, one family of attacks in each file.

Each attack gives a success from 0, nothing or no better than chance, to 1.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedmr_med.prototypes import ClassSums

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]
Release = Callable[[Floats, Ints], ClassSums | None]
"""What leaves of features (n, d) and labels (n,)."""


def prototypes(released: ClassSums | None) -> dict[int, Floats]:
    """Return the mean feature (d,) of each class that is in a release."""
    if released is None:
        return {}
    known = np.flatnonzero(released.counts.numpy() > 0).tolist()
    return {label: (released.sums[label] / released.counts[label]).numpy() for label in known}
