"""What may leave of a comparison of two models: for each class a table without a small cell, or none."""

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.pairs import Pairs
from fedmr_med.privacy.policy import SitePolicy

_DIGITS = 2  # of the squares that leave


def released_pairs(
    answers: tuple[IntArray, IntArray],
    labels: IntArray,
    whole: Scores | None,
    policy: SitePolicy,
    units: IntArray | None = None,
) -> Pairs | None:
    """Return what may leave of the answers (n,) of two models on images with ``labels`` (n,).

    Args:
        whole: what leaves of the scores of the first model.
        units: (n,) the patient of each image; None where nobody knows.
    """
    if whole is None or whole.confusion is None:
        return None
    classes = len(whole.confusion)
    rows = _rows(Pairs.of(*answers, labels, classes), whole, policy)
    kept = rows[labels]
    if not kept.any():
        return None
    first, second = (said[kept] for said in answers)
    found = Pairs.of(first, second, labels[kept], classes, None if units is None else units[kept])
    if units is not None and _patients(labels[kept], units[kept]) < policy.min_class_count:
        found = Pairs.of(first, second, labels[kept], classes)
    return permitted_pairs(found, whole, policy)


def permitted_pairs(pairs: Pairs | None, whole: Scores | None, policy: SitePolicy) -> Pairs | None:
    """Return the tables that the policy allows; ``whole`` is what leaves of the scores of the first model."""
    if pairs is None or whole is None or whole.confusion is None:
        return None
    rows = _rows(pairs, whole, policy)
    cells = np.where(rows[:, None], pairs.cells, 0)
    if not cells.any():
        return None
    if not np.array_equal(cells, pairs.cells):  # the squares are of images that may not leave
        return Pairs(cells, np.zeros(()), np.zeros(()))
    return Pairs(cells, _rounded(pairs.together), _rounded(pairs.alone))


def _rows(pairs: Pairs, whole: Scores, policy: SitePolicy) -> npt.NDArray[np.bool_]:
    """Return the mask (C,) of the classes whose table leaves: with their scores, and without a small cell."""
    assert whole.confusion is not None
    least, cells = policy.min_cell_count, pairs.cells
    large = ((cells == 0) | (cells >= least)).all(1) & (cells.sum(1) >= policy.min_class_count)
    rows: npt.NDArray[np.bool_] = large & (whole.confusion.sum(1) > 0)
    return rows


def _patients(labels: IntArray, units: IntArray) -> int:
    """Return of how many patients the class with the fewest is."""
    found = np.bincount(np.unique(np.stack([labels, units]), axis=1)[0])
    return int(found[found > 0].min())


def _rounded(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(float(f"{float(value):.{_DIGITS}g}"))
