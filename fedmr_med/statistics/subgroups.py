"""Scores by subgroup as fields: those of :mod:`fedmr_med.statistics.scores`, once for each level."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedmr_med.errors import WireError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.statistics.base import ONE_SITE, Origin, Sizes, Statistic
from fedmr_med.statistics.fields import Field, Values
from fedmr_med.statistics.scores import SCORES

Levels = Sequence[Scores | None]
"""Scores of the test images of each level, in the job's order; None of one that nobody shares."""


class SubgroupStatistic(Statistic[Levels]):
    """The fields of each level, their names behind its number."""

    name = "subgroups"

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return the fields of all levels; none where a job has no subgroups."""
        own = SCORES.fields(replace(sizes, validation=False))
        return {f"{level}_{name}": field for level in range(sizes.levels) for name, field in own.items()}

    def values(self, content: Levels) -> Values:
        """Return the fields, those of a level that is not shared zero; some level is."""
        found = {level: SCORES.values(scores) for level, scores in enumerate(content) if scores is not None}
        blank = {name: np.zeros_like(array) for name, array in next(iter(found.values())).items()}
        return {
            f"{level}_{name}": array for level in range(len(content)) for name, array in found.get(level, blank).items()
        }

    def read(self, values: Values, origin: Origin = ONE_SITE) -> Levels | None:
        """Return the scores of each level; None where nobody put anything in."""
        parts: dict[int, dict[str, np.ndarray]] = {}
        for name, array in values.items():
            level, _, field = name.partition("_")
            parts.setdefault(int(level), {})[field] = array
        found = [SCORES.read(part, origin) for _, part in sorted(parts.items())]
        return found if any(scores is not None for scores in found) else None


SUBGROUPS = SubgroupStatistic()


def check_levels(levels: Levels, whole: Scores | None) -> None:
    """Look at scores by level beside those of all images.

    Raises:
        WireError: a level has images that the whole has not.
    """
    for scores in levels:
        known = None if whole is None else whole.confusion
        if scores is not None and (
            known is None or scores.confusion is None or (scores.confusion.sum(1) > known.sum(1)).any()
        ):
            raise WireError("a subgroup has images that the whole has not", code="wire.counts", key="subgroups")
