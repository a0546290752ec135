"""Class sums as fields."""

from collections.abc import Mapping
from typing import Literal

import torch

from fedmr_med.errors import WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.prototypes import ClassSums
from fedmr_med.statistics.base import ONE_SITE, Origin, Sizes, Statistic, counts
from fedmr_med.statistics.fields import Field, Values

COUNTS, SUMS = "counts", "sums"


class ClassSumStatistic(Statistic[ClassSums]):
    """Sums of features by class, and numbers of images.

    Args:
        name: of the statistic.
        size: which of :class:`Sizes` is the length of a sum.
        precision: of the sums outside a secure sum.
    """

    def __init__(
        self,
        name: str,
        size: Literal["feature_size", "statistics_size"],
        precision: Literal["float64", "float32"] = "float64",
    ):
        self.name = name
        self._size, self._precision = size, precision

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return (C,) counts and (C, d) sums."""
        shape = (sizes.num_classes, getattr(sizes, self._size))
        return {COUNTS: counts(sizes.num_classes), SUMS: Field(shape, sizes.digits, precision=self._precision)}

    def values(self, content: ClassSums) -> Values:
        """Return sums and counts."""
        return {COUNTS: content.counts.numpy(), SUMS: content.sums.numpy()}

    def read(self, values: Values, origin: Origin = ONE_SITE) -> ClassSums | None:
        """Return the class sums; of noisy ones, those whose count is large enough."""
        sums = read_class_sums(values, origin, self.name)
        return sums if bool((sums.counts > 0).any()) else None


def read_class_sums(values: Values, origin: Origin, what: str) -> ClassSums:
    """Return class sums, all zero where nobody put anything in.

    Raises:
        WireError: no samples add up to them; ``what`` is their name in the message.
    """
    numbers = torch.from_numpy(values[COUNTS]).long()
    sums = ClassSums(torch.from_numpy(values[SUMS]).double(), numbers)
    if origin.least_count is not None:
        return sums.only(numbers >= origin.least_count)
    if bool((numbers < 0).any()) or bool((numbers > origin.sites * MAX_IMAGES).any()):
        raise WireError(f"{what!r} has counts that no sites have", code="wire.counts", key=what)
    if bool((sums.sums[numbers == 0] != 0).any()):
        raise WireError(f"{what!r} has a class sum without a count", code="wire.counts", key=what)
    return sums


PROTOTYPES = ClassSumStatistic("prototypes", "feature_size", "float32")
"""Of the classes that a site shares, after local training."""
