"""Moments of features as fields: class sums, and uncentred second moments for a closed-form head, which add up."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch

from fedmr_med.errors import PolicyError, WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.prototypes import ClassSums
from fedmr_med.statistics.base import ONE_SITE, Leaving, Origin, Precision, ReadStatistic, Sizes, Statistic, counts
from fedmr_med.statistics.fields import Field, Values, add
from fedmr_med.statistics.head import HeadStatistics, between, symmetric, triangle_of

COUNTS, SUMS = "counts", "sums"


class ClassSumStatistic(Statistic[ClassSums]):
    """Sums of features by class, and numbers of images.

    Attributes:
        size: which of :class:`Sizes` is the length of a sum.
        precision: of the sums in a reply.
    """

    size: ClassVar[Literal["feature_size", "statistics_size"]]
    precision: ClassVar[Precision] = "float64"

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return (C,) counts and (C, d) sums."""
        shape = (sizes.num_classes, getattr(sizes, self.size))
        return {COUNTS: counts(sizes.num_classes), SUMS: Field(shape, sizes.digits, precision=self.precision)}

    def values(self, content: ClassSums) -> Values:
        """Return sums and counts."""
        return {COUNTS: content.counts.numpy(), SUMS: content.sums.numpy()}

    def read(self, values: Values, origin: Origin = ONE_SITE) -> ClassSums | None:
        """Return the class sums; of noisy ones, those whose count is large enough."""
        return _any(read_class_sums(values, origin, self.name))


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


class PrototypeStatistic(ReadStatistic[ClassSums], ClassSumStatistic):
    """Of the classes that a site shares, after local training."""

    name = "prototypes"
    size = "feature_size"
    precision = "float32"

    def permitted(self, content: ClassSums | None, leaving: Leaving) -> ClassSums | None:
        """Return the sums of the classes that are shared and have enough images."""
        if content is None or leaving.lacks_noise:
            return None
        classes = leaving.policy.shareable_classes(content.counts.numpy(), leaving.class_names)
        return _any(content.only(torch.from_numpy(classes)))


class MeanStatistic(ClassSumStatistic):
    """Of the training images of a site that shares no scatter. Apart from the others, they count in the means alone."""

    name = "means"
    size = "statistics_size"

    def permitted(self, content: Values | None, leaving: Leaving) -> Values | None:
        """Return the class sums; without the scatter, of all images: those held out serve to choose its shrinkage."""
        parts = [self.name] if leaving.policy.share_scatter else [KEPT.name, HELD_OUT.name, self.name]
        made = [leaving.found[part] for part in parts if part in leaving.found]
        if not made or not all(_whole(part, leaving) for part in made):
            return None
        return add(*({name: part[name] for name in (COUNTS, SUMS)} for part in made))


PROTOTYPES, MEANS = PrototypeStatistic(), MeanStatistic()

MOMENTS = "moments"
_SLACK = 1e-3  # of a variance, relative to the second moment that it is a small part of


class MomentStatistic(Statistic[HeadStatistics]):
    """Class sums with the second moments of the very same images."""

    def __init__(self, name: Literal["kept", "held_out"]):
        self.name = name

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return (C,) counts, (C, d) sums, and the upper triangle of the (d, d) moments."""
        size = sizes.statistics_size
        return {**MEANS.fields(sizes), MOMENTS: Field((size * (size + 1) // 2,), sizes.digits)}

    def values(self, content: HeadStatistics) -> Values:
        """Return sums and moments of the images behind the scatter."""
        moments = content.scatter + between(content.scattered)
        return {**MEANS.values(content.scattered), MOMENTS: triangle_of(moments).numpy()}

    def read(self, values: Values, origin: Origin = ONE_SITE) -> HeadStatistics | None:
        """Return the statistics; with noise, no variance is below what noise alone gives."""
        sums = read_class_sums(values, origin, self.name)
        if not bool((sums.counts > 0).any()):
            return None
        moments = symmetric(torch.from_numpy(values[MOMENTS]), sums.sums.shape[1])
        scatter = moments - between(sums)
        if origin.least_count is not None:
            return HeadStatistics(sums, sums, above_noise(scatter, origin.moments_noise))
        # Rounding can leave a direction without variance slightly negative.
        diagonal = scatter.diagonal()
        if bool((diagonal < -_SLACK * (1 + moments.diagonal().abs())).any()):
            raise WireError(f"{self.name!r} has moments that no features have", code="wire.range", key=self.name)
        diagonal.clamp_(min=0)
        # No direction may have a negative variance; a Cholesky factor costs a tenth of the eigenvalues.
        margin = _SLACK * (1 + float(moments.diagonal().abs().max()))
        if torch.linalg.cholesky_ex(scatter + margin * torch.eye(len(scatter), dtype=scatter.dtype)).info:
            raise WireError(f"{self.name!r} has moments that no features have", code="wire.range", key=self.name)
        return HeadStatistics(sums, sums, scatter)

    def permitted(self, content: Values | None, leaving: Leaving) -> Values | None:
        """Return all of it, or nothing where the policy does not share the scatter."""
        if content is None or not leaving.policy.share_scatter:
            return None
        return content if _whole(content, leaving) else None

    def check(self, content: Values, found: Mapping[str, Any]) -> None:
        """Look for the images that were kept: what was held out has no use without them."""
        if KEPT.name not in found:
            raise WireError("held-out statistics without the others", code="wire.form", key="held-out")


def _whole(values: Values, leaving: Leaving) -> bool:
    """Whether statistics for a head may leave as they are.

    Raises:
        PolicyError: they hold a class that may not leave, or too few samples of one. Second moments cannot be taken
            apart by class, so nothing of them leaves then.
    """
    if leaving.lacks_noise:
        return False
    numbers = values[COUNTS]
    if bool(((numbers > 0) & ~leaving.policy.shareable_classes(numbers, leaving.class_names)).any()):
        raise PolicyError(
            "the statistics hold a class that the policy does not share, or too few images of one.",
            code="policy.too-few-images",
        )
    return True


def _any(sums: ClassSums) -> ClassSums | None:
    return sums if bool((sums.counts > 0).any()) else None


def above_noise(scatter: torch.Tensor, noise: float) -> torch.Tensor:
    """Return a scatter matrix (d, d) with no variance below what noise alone gives.

    A symmetric matrix of independent noise has eigenvalues up to 2 sqrt(d) times its standard deviation ``noise`` (the
    semicircle law). Directions below it tell nothing, and a head would divide by them.
    """
    eigenvalues, vectors = torch.linalg.eigh(scatter)
    raised: torch.Tensor = (vectors * eigenvalues.clamp(min=2 * noise * len(scatter) ** 0.5)) @ vectors.T
    return raised


KEPT, HELD_OUT = MomentStatistic("kept"), MomentStatistic("held_out")
"""Of a site's training images, and of those set aside to choose the shrinkage."""
