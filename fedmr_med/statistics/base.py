"""A statistic: what the samples of several sites add up to, read alike from one site and from a total."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.statistics.fields import BITS, Field, Layout, Values

T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """What the shapes of a job's statistics follow from.

    Attributes:
        num_classes: C.
        feature_size: length of a class sum.
        statistics_size: length of a class sum for a closed-form head, which may be of projected features.
        digits: binary digits after the point of sums of features in a secure sum.
        validation: whether models are scored on validation images too.
        levels: how many levels the job's subgroups have.
        pairs: whether two models are compared.
    """

    num_classes: int
    feature_size: int
    statistics_size: int
    digits: int = BITS
    validation: bool = False
    levels: int = 0
    pairs: bool = False


@dataclass(frozen=True)
class Origin:
    """Where values come from.

    Attributes:
        sites: how many sites are in them.
        least_count: the noisy count from which on a class counts; None where the values have no noise.
        moments_noise: standard deviation of the noise on each entry of second moments.
    """

    sites: int = 1
    least_count: int | None = None
    moments_noise: float = 0.0


ONE_SITE = Origin()


class Additive(ABC):
    """What adds up over sites, field by field.

    Attributes:
        name: of the statistic.
    """

    name: str

    @property
    def part(self) -> str:
        """Its name in messages; its fields in a secure sum are ``part/field``."""
        return self.name

    @abstractmethod
    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return its fields, the same for all sites of a job; those with one row per class are ``by_class``."""

    def layout(self, sizes: Sizes) -> Layout:
        """Return its fields as they travel."""
        return Layout(self.fields(sizes))


class Statistic(Additive, Generic[T]):
    """One statistic of this package."""

    @abstractmethod
    def values(self, content: T) -> Values:
        """Return what a site puts in; all of it adds up over sites."""

    @abstractmethod
    def read(self, values: Values, origin: Origin = ONE_SITE) -> T | None:
        """Return what values of one or more sites mean; None where nobody put anything in.

        Raises:
            WireError: no samples add up to them.
        """


def counts(*shape: int) -> Field:
    """Return a field of numbers of images."""
    return Field(shape, least=0, most=MAX_IMAGES)
