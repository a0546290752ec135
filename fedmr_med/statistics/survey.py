"""A survey: what pictures several sites hold, in numbers that add up, without a model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmr_med.errors import WireError
from fedmr_med.evaluation.clinical import FloatArray, IntArray
from fedmr_med.privacy.mechanisms import without_small_parts
from fedmr_med.statistics.base import ONE_SITE, Leaving, Origin, ReadStatistic, Sizes, counts
from fedmr_med.statistics.fields import BITS, Field, Values

EDGES = (0, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072)
"""Pixels from which on the shorter edge of a picture, as its file has it, is in the next bin."""

TONES = ("brightness", "contrast", "red", "green", "blue")
"""What is measured of a picture, from 0 to 1: the mean of all values, their deviation, the mean of each color."""

_DECIMALS = 3  # of the sums that leave
_SLACK = 1e-2  # of the same, which a secure sum rounds once more


@dataclass(frozen=True)
class Survey:
    """What one or more sites hold.

    Attributes:
        train, test: (C,) images of each class.
        edges: (len(EDGES),) training images by the shorter edge of the picture.
        levels: (S,) training images of each level of the job's subgroups, in the job's order.
        doubles: (1,) images that repeat the pixels of another one of the site.
        measured: (1,) training images behind the two sums.
        tones, squares: (len(TONES),) sums over the training images, and of their squares.
    """

    train: IntArray
    test: IntArray
    edges: IntArray
    levels: IntArray
    doubles: IntArray
    measured: IntArray
    tones: FloatArray
    squares: FloatArray

    def rounded(self) -> "Survey":
        """Return what may leave: three decimals of each sum."""
        return Survey(**vars(self) | {name: getattr(self, name).round(_DECIMALS) for name in ("tones", "squares")})


class SurveyStatistic(ReadStatistic[Survey]):
    """The fields of :class:`Survey`."""

    name = "survey"

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return six fields of counts, and two of sums."""
        sums = {name: Field((len(TONES),), BITS, least=0) for name in ("tones", "squares")}
        return {
            "train": counts(sizes.num_classes),
            "test": counts(sizes.num_classes),
            "edges": counts(len(EDGES)),
            "levels": counts(sizes.levels),
            "doubles": counts(1),
            "measured": counts(1),
            **sums,
        }

    def values(self, content: Survey) -> Values:
        """Return the fields."""
        return vars(content)

    def read(self, values: Values, origin: Origin = ONE_SITE) -> Survey | None:
        """Return the survey; None where nobody put anything in."""
        arrays: dict[str, Any] = dict(values)
        found, images = Survey(**arrays), values["train"].sum()
        if any((array < 0).any() for array in arrays.values()):
            self._refuse("a negative number")
        if max(found.edges.sum(), found.measured.sum(), found.levels.max(initial=0)) > images:
            self._refuse("more images by size, tone or subgroup than by class")
        if found.doubles.sum() > images + found.test.sum():
            self._refuse("more doubles than images")
        # A tone is from 0 to 1, so its square is less, and no mean of squares is below the square of the mean.
        slack, number = _SLACK * origin.sites, max(1, int(found.measured.sum()))
        if (found.tones > found.measured + slack).any() or (found.squares > found.tones + slack).any():
            self._refuse("tones that are not between 0 and 1")
        if (found.squares < found.tones**2 / number - slack).any():
            self._refuse("tones that no pictures have")
        return found if any(array.any() for array in arrays.values()) else None

    def permitted(self, content: Survey | None, leaving: Leaving) -> Survey | None:
        """Return what may leave: no number from 1 to ``min_class_count`` - 1, nor what such a one follows from.

        What was measured on images of a class that may not leave is no part of it.
        """
        if content is None:
            return None
        policy, levels = leaving.policy, leaving.levels
        least, told = policy.min_class_count, policy.told_levels(levels)
        train, test = (
            np.where(policy.told_classes(part, leaving.class_names), part, 0).astype(np.int64)
            for part in (content.train, content.test)
        )
        whole = np.array_equal(train, content.train)
        of_levels = np.where(told & whole, content.levels, 0)
        for column in dict.fromkeys(column for column, _ in levels):
            own = np.array([name == column for name, _ in levels])
            of_levels[own] = without_small_parts(of_levels[own], int(train.sum()), least)
        if policy.share_survey != "images" or not whole or not content.measured.any():
            left = Survey(train=train, test=test, levels=of_levels, **not_measured())
        else:
            edges = without_small_parts(content.edges, int(train.sum()), least)
            doubles = np.where(content.doubles >= least, content.doubles, 0)
            left = replace(content, train=train, test=test, edges=edges, levels=of_levels, doubles=doubles).rounded()
        return left if train.any() or test.any() else None

    def _refuse(self, reason: str) -> None:
        raise WireError(f"the survey has {reason}", code="wire.counts", key=self.name)


SURVEY_STATISTIC = SurveyStatistic()


def moments(survey: Survey) -> tuple[FloatArray, FloatArray]:
    """Return the mean of each tone over the images, and the deviation between images; NaN without any."""
    number = float(survey.measured.sum()) or np.nan
    mean: FloatArray = survey.tones / number
    return mean, np.sqrt(np.maximum(survey.squares / number - mean**2, 0))


def not_measured() -> dict[str, Any]:
    """Return the fields of a survey that opened no picture."""
    counts = {"edges": len(EDGES), "doubles": 1, "measured": 1}
    sums = {name: np.zeros(len(TONES)) for name in ("tones", "squares")}
    return {**{name: np.zeros(length, np.int64) for name, length in counts.items()}, **sums}
