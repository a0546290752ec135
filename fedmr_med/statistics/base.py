"""A statistic: what the samples of several sites add up to, read alike from one site and from a total.

Each says once, in one file, which fields it has, what of it may leave under a site's policy, and what its values mean.
Messages, secure sums and the rule on what leaves loop over the statistics of an exchange and name none of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from fedmr_med.arrays import Arrays
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.statistics.fields import BITS, Field, Layout, Values

T = TypeVar("T")
Precision = Literal["float64", "float32"]


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


@dataclass(frozen=True)
class Leaving:
    """What decides on one site's statistics in one exchange, beside their own content.

    Attributes:
        policy: of the site.
        class_names: of the task.
        levels: column and level of each of the job's subgroups.
        private: whether the job has noise on class sums.
        layouts: the fields of the statistics of the exchange.
        found: what the site has made, by part.
        left: what leaves of the statistics that come before this one.
    """

    policy: SitePolicy
    class_names: tuple[str, ...]
    levels: tuple[tuple[str, str], ...] = ()
    private: bool = False
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)
    left: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lacks_noise(self) -> bool:
        """Whether the site demands noise on sums of features, and the job has none."""
        return self.policy.privacy is not None and not self.private


class Additive(ABC):
    """What adds up over sites, field by field. A reply holds its values.

    Attributes:
        name: of the statistic.
        tells: whether messages have something of it beside the arrays, see :meth:`told`.
    """

    name: str
    tells: ClassVar[bool] = False

    @property
    def part(self) -> str:
        """Its name in messages and replies; its fields in a secure sum are ``part/field``."""
        return self.name

    @abstractmethod
    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return its fields, the same for all sites of a job; those with one row per class are ``by_class``."""

    def layout(self, sizes: Sizes) -> Layout:
        """Return its fields as they travel."""
        return Layout(self.fields(sizes))

    @abstractmethod
    def permitted(self, content: Any, leaving: Leaving) -> Any:
        """Return what of a reply's content may leave, in the reply or in a secure sum; None where nothing may.

        Args:
            content: None where the site has made nothing.

        Raises:
            PolicyError: it holds what may not leave, and cannot be taken apart.
        """

    def exact(self, content: Any) -> Values:
        """Return what a reply's content puts into a secure sum; of no field where it does not add up."""
        values: Values = content
        return values

    def sent(self, content: Any) -> Arrays:
        """Return a reply's content as it travels; of no field where it does not add up."""
        return dict(content)

    def told(self, content: Any) -> Any:
        """Return what does not add up of a reply's content, or of None: a plain value."""
        return None

    def received(self, arrays: Arrays | None, layout: Layout, told: Any) -> Any:
        """Return the content of a reply that was sent so; None where there is none.

        Raises:
            WireError: it does not have the agreed form, or no samples add up to it.
        """
        return None if arrays is None else layout.checked(arrays, self.part)

    def check(self, content: Any, found: Mapping[str, Any]) -> None:  # noqa: B027 - most fit whatever there is
        """Compare the content of a reply with that of the reply's other statistics, by part.

        Raises:
            WireError: they do not fit each other.
        """


class Statistic(Additive, Generic[T]):
    """One statistic of this package. Its values are read when they are added up."""

    @abstractmethod
    def values(self, content: T) -> Values:
        """Return what a site puts in; all of it adds up over sites."""

    @abstractmethod
    def read(self, values: Values, origin: Origin = ONE_SITE) -> T | None:
        """Return what values of one or more sites mean; None where nobody put anything in.

        Raises:
            WireError: no samples add up to them.
        """


class ReadStatistic(Statistic[T]):
    """One that is read with the reply that it comes in: a reply holds what it means.

    Attributes:
        precision: of its real numbers in a reply.
    """

    precision: ClassVar[Precision] = "float64"

    def exact(self, content: T) -> Values:
        """Return its values."""
        return self.values(content)

    def sent(self, content: T) -> Arrays:
        """Return its values with the types that they have on the wire."""
        values = self.values(content)
        return {name: array.astype(self._type(array), copy=False) for name, array in values.items()}

    def received(self, arrays: Arrays | None, layout: Layout, told: Any) -> T | None:
        """Return what it means."""
        return None if arrays is None else self.read(layout.checked(arrays, self.part))

    def _type(self, array: npt.NDArray[Any]) -> np.dtype[Any]:
        return np.dtype(self.precision if array.dtype.kind == "f" else np.int64)


def counts(*shape: int) -> Field:
    """Return a field of numbers of images."""
    return Field(shape, least=0, most=MAX_IMAGES)
