"""Two models on the same images as fields, see :mod:`fedmr_med.evaluation.pairs`."""

from collections.abc import Mapping

from fedmr_med.errors import WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.pairs import BOTH, FIRST, Pairs
from fedmr_med.statistics.base import ONE_SITE, Origin, Sizes, Statistic, counts
from fedmr_med.statistics.fields import BITS, Field, Values

_SLACK = 1e-3


class PairStatistic(Statistic[Pairs]):
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


PAIRS = PairStatistic()


def check_pairs(pairs: Pairs | None, whole: Scores | None) -> None:
    """Compare the tables of one site with the scores of the first model on the same images.

    Raises:
        WireError: they are of other images.
    """
    if pairs is None:
        return
    known = None if whole is None else whole.confusion
    told = pairs.cells.any(1)
    right = pairs.cells[:, BOTH] + pairs.cells[:, FIRST]
    if known is None or (pairs.cells.sum(1) != known.sum(1))[told].any() or (right != known.diagonal())[told].any():
        raise WireError("the tables of the two models are of other images", code="wire.counts", key="pairs")
