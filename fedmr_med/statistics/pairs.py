"""Two models on the same images as fields, see :mod:`fedmr_med.evaluation.pairs`, and what of them may leave."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.pairs import BOTH, FIRST, Pairs
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.statistics.base import ONE_SITE, Leaving, Origin, ReadStatistic, Sizes, counts
from fedmr_med.statistics.fields import BITS, Field, Values
from fedmr_med.statistics.scores import SCORES, fewest_patients

_SLACK = 1e-3
_DIGITS = 2  # of the squares that leave


class PairStatistic(ReadStatistic[Pairs]):
    """A table for each class, and how far the images of a patient go together."""

    name = "pairs"

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return its three fields; none where a job compares no models."""
        if not sizes.pairs:
            return {}
        sums = {name: Field((), BITS, least=0) for name in ("together", "alone")}
        return {"cells": counts(sizes.num_classes, 4), **sums}

    def values(self, content: Pairs) -> Values:
        """Return the fields."""
        return vars(content)

    def read(self, values: Values, origin: Origin = ONE_SITE) -> Pairs | None:
        """Return the tables; None where nobody put anything in."""
        if not values:
            return None
        cells = values["cells"]
        if (cells < 0).any() or cells.sum() > origin.sites * MAX_IMAGES:
            raise WireError(
                "the tables of the two models have counts that no sites have", code="wire.counts", key="pairs"
            )
        if min(float(values["together"]), float(values["alone"])) < -_SLACK:
            raise WireError("the tables of the two models have negative squares", code="wire.range", key="pairs")
        return Pairs(cells, values["together"], values["alone"]) if cells.any() else None

    def permitted(self, content: Pairs | None, leaving: Leaving) -> Pairs | None:
        """Return the tables that the policy allows."""
        return permitted_pairs(content, leaving.left.get(SCORES.name), leaving.policy)

    def check(self, content: Pairs, found: Mapping[str, Any]) -> None:
        """Compare the tables with the scores of the first model on the same images."""
        whole = found.get(SCORES.name)
        known = None if whole is None else whole.confusion
        told = content.cells.any(1)
        right = content.cells[:, BOTH] + content.cells[:, FIRST]
        if (
            known is None
            or (content.cells.sum(1) != known.sum(1))[told].any()
            or (right != known.diagonal())[told].any()
        ):
            raise WireError("the tables of the two models are of other images", code="wire.counts", key="pairs")


PAIRS = PairStatistic()


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
    if units is not None and fewest_patients(labels[kept], units[kept]) < policy.min_class_count:
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


def _rounded(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(float(f"{float(value):.{_DIGITS}g}"))
