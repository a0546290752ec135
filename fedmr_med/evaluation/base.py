"""What a metric is: a function of counts that add up over sites, so it needs nothing that sites do not share already.

:mod:`fedmr_med.evaluation.catalog` finds metrics by name.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, JsonValue

from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.clinical import (
    EDGES,
    FloatArray,
    IntArray,
    Ranking,
    ScoreHistograms,
    best_thresholds,
    hanley_mcneil,
    ranking,
)
from fedmr_med.evaluation.clustering import Clustering
from fedmr_med.schema import Strict

NAME = r"^[a-z][a-z0-9_]{0,39}$"
DIGITS = 4
"""To so many digits results keep a figure."""

MetricName = Annotated[str, Field(pattern=NAME)]


class Estimate(Strict):
    """A figure and its interval of 95 %; both ends are None where a metric has no interval."""

    value: float
    low: float | None = None
    high: float | None = None


Values = dict[MetricName, Estimate]
"""Figures by the name of their metric."""

Statistics = Annotated[dict[str, JsonValue], Field(exclude_if=lambda value: not value)]
"""What statistics of other packages say of an exchange, by name; left out where there are none."""

Value = float | Estimate | None
"""What a metric returns. None, or a number that is not finite, says that there is no value."""


@dataclass(frozen=True)
class Counts:
    """What sites share of a model's answers, added up over them. A class counts if it has images here.

    Attributes:
        confusion: (C, C) counts, row = true class, column = the model's answer; rows that are held back are zero.
        histograms: of the probabilities; None where no site shares them.
        thresholds: of each class, from which probability on it is called; None chooses them on these images, if all
            classes count.
        clustering: how far the images of a patient go together; None takes every image for one patient's.
    """

    confusion: IntArray
    histograms: ScoreHistograms | None = None
    thresholds: Sequence[float | None] | None = None
    clustering: Clustering | None = None

    def effect(self, name: str) -> float:
        """Return by how much patients widen the variance of a figure of all classes together."""
        return 1.0 if self.clustering is None else self.clustering.effect(name)

    def effects(self, name: str) -> FloatArray:
        """Return the same (C,) for a figure of each class."""
        return np.ones(len(self.confusion)) if self.clustering is None else self.clustering.effects(name)

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """The mask (C,) of the classes that count."""
        return np.asarray(self.confusion.sum(1) > 0)

    @property
    def chooses(self) -> bool:
        """Whether a threshold or a temperature can be chosen on these images: all classes are in the histograms."""
        return self.histograms is not None and bool((self.histograms.positives.sum(1) > 0).all())

    @cached_property
    def ranking(self) -> Ranking | None:
        """How well the probabilities tell each class from the others; None without histograms."""
        counted = self.histograms
        return None if counted is None else ranking(counted.positives, counted.negatives)

    def ranked(self, label: int) -> tuple[int, int]:
        """Return how many images of a class, and of others, are in the histograms."""
        counted = self.histograms
        return (int(counted.positives[label].sum()), int(counted.negatives[label].sum())) if counted else (0, 0)

    def auroc(self, label: int) -> tuple[float, float] | None:
        """Return the area under a class's ROC curve and its standard error; None unless it and others have images."""
        own, others = self.ranked(label)
        if self.ranking is None or not own or not others:
            return None
        area = float(self.ranking.auroc[label])
        # fmax ignores NaN, the error where a side has a single image.
        return area, float(np.fmax(self.ranking.auroc_error[label], hanley_mcneil(area, own, others)))

    @cached_property
    def edges(self) -> IntArray:
        """The edge in ``EDGES`` that is the threshold of each class, (C,); -1 for a class without one."""
        if self.ranking is None or (self.thresholds is None and not self.chooses):
            return np.full(len(self.confusion), -1)
        if self.thresholds is None:
            return best_thresholds(self.ranking)
        return np.array([-1 if t is None else int(np.abs(EDGES - t).argmin()) for t in self.thresholds])


@dataclass(frozen=True)
class Metric:
    """One figure of a model on a test set.

    Attributes:
        name: key in results, of lower-case letters, digits and underscores.
        title: what tables call it.
        overall: its value for all classes together; ``mean`` takes the mean of ``by_class`` over the classes that have
            one, with an interval that holds however their errors depend on each other.
        by_class: its values for each class, (C,).
        higher_is_better: its direction.
        format: how a value is printed, as in an f-string.
        binned: whether it is read off the histograms.
    """

    name: str
    title: str
    overall: Callable[[Counts], Value] | Literal["mean"] | None = None
    by_class: Callable[[Counts], Iterable[Value]] | None = None
    higher_is_better: bool = True
    format: str = ".3f"
    binned: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(NAME, self.name):
            raise ConfigError(
                f"The name of metric {self.name!r} must be of lower-case letters, digits and underscores.",
                code="config.value",
                key="name",
            )

    @property
    def heading(self) -> str:
        """What tables call its value for all classes together."""
        return f"{self.title}, mean over the classes" if self.overall == "mean" else self.title

    @property
    def direction(self) -> str:
        """Which values are better, in words."""
        return "higher is better" if self.higher_is_better else "lower is better"

    def text(self, estimate: Estimate | None) -> str:
        """Return a value and its interval as people read them."""
        if estimate is None:
            return "-"
        value, *ends = (
            format(part, self.format) for part in (estimate.value, estimate.low, estimate.high) if part is not None
        )
        return f"{value} ({' to '.join(ends)})" if ends else value

    def values(self, counts: Counts) -> tuple[Estimate | None, list[Estimate | None]]:
        """Return its value for all classes together, if at least two count, and those of each class, (C,)."""
        classes = len(counts.confusion)
        found = [_estimate(value) for value in self.by_class(counts)] if self.by_class else []
        if len(found) not in (0, classes):
            raise ValueError(f"metric {self.name} has {len(found)} values for {classes} classes")
        if self.overall is None or int(counts.present.sum()) < 2:
            return None, found or [None] * classes
        overall = _mean(found) if self.overall == "mean" else self.overall(counts)
        return _estimate(overall), found or [None] * classes


def short(value: float) -> float:
    """Round a figure as results keep it."""
    return round(float(value), DIGITS)


def _estimate(value: Value) -> Estimate | None:
    if isinstance(value, Estimate):
        return Estimate(**{key: None if part is None else short(part) for key, part in value})
    return None if value is None or not math.isfinite(value) else Estimate(value=short(value))


def _mean(estimates: Sequence[Estimate | None]) -> Estimate | None:
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return None
    columns = zip(*((e.value, e.low, e.high) for e in known), strict=True)
    value, low, high = (None if None in column else sum(column) / len(known) for column in columns)
    return Estimate(value=value, low=low, high=high)
