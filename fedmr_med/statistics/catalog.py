"""Which statistics sites share in which exchange: the one list of them."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedmr_med.statistics.base import Additive, Sizes, Statistic
from fedmr_med.statistics.exchanges import HEAD, SURVEY, TRAIN, VALIDATE
from fedmr_med.statistics.fields import Layout
from fedmr_med.statistics.moments import HELD_OUT, KEPT, MEANS, PROTOTYPES
from fedmr_med.statistics.pairs import PAIRS
from fedmr_med.statistics.scores import SCORES
from fedmr_med.statistics.shared import PREFIX, SHARED, shared_statistics
from fedmr_med.statistics.subgroups import SUBGROUPS
from fedmr_med.statistics.survey import SURVEY_STATISTIC

STATISTICS: Mapping[str, tuple[Statistic[Any], ...]] = {
    TRAIN: (PROTOTYPES, SCORES),
    VALIDATE: (SCORES, SUBGROUPS, PAIRS),
    HEAD: (KEPT, HELD_OUT, MEANS),
    SURVEY: (SURVEY_STATISTIC,),
}
"""What sites share in each exchange. What leaves of one can depend on those before it."""

_BY_PART = {statistic.part: statistic for statistics in STATISTICS.values() for statistic in statistics}


def statistic_of(part: str) -> Additive:
    """Return the statistic that a part of a reply holds."""
    if part.startswith(PREFIX):
        return SHARED.get(part.removeprefix(PREFIX), "federation.statistics")()
    return _BY_PART[part]


def layouts(kind: str, sizes: Sizes, packages: Iterable[str] = ()) -> dict[str, Layout]:
    """Return the fields of all statistics of an exchange by part, those of other packages last."""
    statistics: tuple[Additive, ...] = (*STATISTICS[kind], *shared_statistics(packages, kind))
    return {statistic.part: statistic.layout(sizes) for statistic in statistics}
