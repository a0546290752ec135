"""Statistics that other packages let sites share: registered by name, asked for by ``federation.statistics`` of a job.

A statistic says its fields, what a batch of samples puts in, and what a total means. It sees only samples of classes
that may leave the site. What may leave is not for its package to say.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue

from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.registry import Registry
from fedmr_med.statistics.base import Additive, Leaving, Sizes
from fedmr_med.statistics.fields import Layout, Values

PREFIX = "shared/"
"""Before the name of a statistic in messages and secure sums, so that it takes nobody's place."""


@dataclass(frozen=True)
class Samples:
    """A batch of samples of classes that may leave.

    Attributes:
        features: (n, d) float32.
        logits: (n, C) float32.
        labels: (n,) int64.
    """

    features: npt.NDArray[np.float32]
    logits: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]


class SharedStatistic(Additive):
    """One statistic of a package; a job asks for it by its name.

    Attributes:
        exchange: when it is made: ``train`` of the training images with the trained network, ``validate`` of the test
            images and ``head`` of the training images with the received one.
    """

    exchange: ClassVar[Literal["train", "validate", "head"]]

    @abstractmethod
    def values(self, samples: Samples, sizes: Sizes) -> Values:
        """Return what a batch of samples puts in; batches and sites are added."""

    @abstractmethod
    def result(self, total: Values) -> JsonValue:
        """Return what the total over all sites means, for the results of the round."""

    @property
    def part(self) -> str:
        """Its name in messages and replies."""
        return PREFIX + self.name

    @final
    def permitted(self, content: Values | None, leaving: Leaving) -> Values | None:
        """Return what may leave, as far as its fields tell the classes apart."""
        most = np.full(len(leaving.class_names), np.iinfo(np.int64).max)
        classes = shared_classes(self.exchange, most, leaving.policy, leaving.class_names, private=leaving.private)
        return (
            None if content is None or not classes.any() else only_classes(content, leaving.layouts[self.part], classes)
        )


SHARED: Registry[type[SharedStatistic]] = Registry(
    "statistic",
    group="fedmr_med.statistics",
    fits=lambda name, item: isinstance(item, type) and issubclass(item, SharedStatistic) and item.name == name,
)


def shared_statistics(names: Iterable[str], exchange: str) -> tuple[SharedStatistic, ...]:
    """Return the statistics of an exchange that a job asks for by name.

    Raises:
        ConfigError: there is no such statistic, or its package does not load.
    """
    found = (SHARED.get(name, "federation.statistics")() for name in names)
    return tuple(statistic for statistic in found if statistic.exchange == exchange)


def only_classes(values: Values, layout: Layout, classes: npt.NDArray[np.bool_]) -> Values:
    """Return values in which the rows of classes outside the mask (C,) are zero."""
    return {
        name: np.where(classes.reshape(-1, *[1] * (values[name].ndim - 1)), values[name], 0).astype(field.dtype)
        if field.by_class
        else values[name]
        for name, field in layout.fields.items()
    }


def shared_classes(
    exchange: str, counts: IntArray, policy: SitePolicy, class_names: tuple[str, ...], *, private: bool
) -> npt.NDArray[np.bool_]:
    """Return the mask (C,) of the classes whose samples statistics of other packages may be made of.

    They have no noise. So nothing of training images leaves in a job with noise, or at a site that demands it.

    Args:
        exchange: training images, or for ``validate`` test images.
        counts: (C,) numbers of these images.
        private: whether the job has noise on class sums.
    """
    without_noise = not private and policy.privacy is None
    allowed = policy.share_metrics == "per_class" if exchange == "validate" else without_noise
    return policy.shareable_classes(counts, class_names) & allowed
