"""Which statistics each exchange asks for, and what a secure sum makes of them: one vector of all their fields.

What a site does not share is zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from fedmr_med.errors import WireError
from fedmr_med.statistics.base import Sizes, Statistic
from fedmr_med.statistics.fields import Field, Layout, Values
from fedmr_med.statistics.moments import HELD_OUT, KEPT, MEANS, PROTOTYPES
from fedmr_med.statistics.scores import SCORES
from fedmr_med.statistics.shared import layouts
from fedmr_med.statistics.subgroups import SUBGROUPS
from fedmr_med.statistics.survey import SURVEY_STATISTIC
from fedmr_med.wire.kinds import EXCHANGES, HEAD, SURVEY, TRAIN, VALIDATE

MODELS = "models"
"""Name of the sums of trained models (:mod:`fedmr_med.statistics.model_sums`) in a secure sum."""

STATISTICS: Mapping[str, tuple[Statistic[Any], ...]] = {
    TRAIN: (PROTOTYPES, SCORES),
    VALIDATE: (SCORES, SUBGROUPS),
    HEAD: (KEPT, HELD_OUT, MEANS),
    SURVEY: (SURVEY_STATISTIC,),
}
"""What sites share in each exchange."""


@dataclass(frozen=True)
class SumForms:
    """The forms of all secure sums of a job.

    Attributes:
        sizes: of the job's statistics.
        models: fields of the sums of trained models, where they are summed too.
        shared: names of the statistics of other packages that the job asks for.
    """

    sizes: Sizes
    models: Mapping[str, Field]
    shared: tuple[str, ...] = ()

    def parts(self, release: str) -> dict[str, Layout]:
        """Return the fields of a release by statistic, given its name.

        Raises:
            WireError: there is no such kind of release.
        """
        kind = release.partition("-")[0]
        if kind not in STATISTICS:
            raise WireError("there is no such release", code="wire.form", key="release")
        parts = {statistic.name: statistic.layout(self.sizes) for statistic in STATISTICS[kind]}
        parts |= layouts(self.shared, kind, self.sizes)
        return parts | ({MODELS: Layout(self.models)} if kind == TRAIN and self.models else {})

    def layout(self, release: str) -> Layout:
        """Return all fields of a release; see :meth:`parts`."""
        parts = self.parts(release)
        return Layout(_joined({name: layout.fields for name, layout in parts.items()}))

    def pack(self, release: str, values: Mapping[str, Values]) -> npt.NDArray[Any]:
        """Return what a site puts into a release, by statistic, as one vector."""
        return self.layout(release).pack(_joined(values))

    def unpack(self, release: str, vector: npt.NDArray[Any]) -> dict[str, Values]:
        """Return a total by statistic."""
        values = self.layout(release).unpack(vector)
        return {
            name: {field: values[f"{name}/{field}"] for field in layout.fields}
            for name, layout in self.parts(release).items()
        }

    @property
    def vector_sizes(self) -> frozenset[int]:
        """The lengths of all vectors."""
        return frozenset(self.layout(kind).size for kind in EXCHANGES)


def _joined(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{part}/{name}": item for part, items in parts.items() for name, item in items.items()}
