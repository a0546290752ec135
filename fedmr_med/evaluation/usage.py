"""How often a model answered what, and how surely, at each hospital: counts that add up, small ones held back."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from fedmr_med.errors import ResultsError
from fedmr_med.schema import Name, Sha256, Strict, invalid

EDGES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Between the groups of the probability of an answer: narrow where confident networks have most of theirs."""

GROUPS = tuple(f"{low:g} to {high:g}" for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True))
Told = Annotated[int, Field(ge=0)] | None
"""A number of images, or None where it is held back: there are few, or none."""


class Usage(Strict):
    """How a model was used at one hospital.

    Attributes:
        periods: first and last day of each, in UTC.
        images: how many different ones it answered for.
        answers: images by the class it answered with.
        confidence: images by the probability of that answer, see :data:`GROUPS`.
    """

    periods: tuple[tuple[date, date], ...] = Field(min_length=1)
    images: int = Field(ge=1, lt=10**8)
    answers: dict[Name, Told]
    confidence: dict[str, Told]

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if tuple(self.confidence) != GROUPS:
            raise invalid("other groups of confidence than this version has", code="file.version", key="confidence")
        for key, counts in (("answers", self.answers), ("confidence", self.confidence)):
            if sum(count or 0 for count in counts.values()) > self.images:
                raise invalid("more images than there are in all", code="config.value", key=key)
        return self

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            periods=(*self.periods, *other.periods),
            images=self.images + other.images,
            answers=_added(self.answers, other.answers),
            confidence=_added(self.confidence, other.confidence),
        )


class Summary(Strict):
    """How a model was used, by hospital.

    Attributes:
        model: SHA-256 of the model file.
        usage: by the hospital's name.
    """

    model: Sha256
    usage: dict[Name, Usage] = Field(min_length=1)

    def __add__(self, other: "Summary") -> "Summary":
        """Add another period, or other hospitals.

        Raises:
            ResultsError: it is of another model, or of a hospital in the same days.
        """
        self.check_apart(other)
        usage = dict(self.usage)
        for site, more in other.usage.items():
            usage[site] = usage[site] + more if site in usage else more
        return Summary(model=self.model, usage=usage)

    def check_apart(self, other: "Summary") -> None:
        """See that two summaries are of one model, and share no image.

        Raises:
            ResultsError: they are not, or may.
        """
        if self.model != other.model:
            raise ResultsError(
                f"The summaries are of different models ({self.model[:12]}..., {other.model[:12]}...).",
                code="config.conflict",
                key="model",
            )
        for site in self.usage.keys() & other.usage.keys():
            mine, theirs = self.usage[site], other.usage[site]
            if mine.answers.keys() != theirs.answers.keys():
                raise ResultsError(f"{site}: the summaries have different classes.", code="config.conflict", key=site)
            if any(a[0] <= b[1] and b[0] <= a[1] for a in mine.periods for b in theirs.periods):
                raise ResultsError(
                    f"{site}: two summaries have days in common. Give each hospital its own --site, and each summary "
                    "days of its own.",
                    code="config.conflict",
                    key=site,
                )


def group_of(confidence: float) -> str:
    """Return the group of :data:`GROUPS` that a probability is in."""
    return GROUPS[int(np.searchsorted(EDGES, confidence, side="right"))]


def _added(mine: Mapping[str, Told], theirs: Mapping[str, Told]) -> dict[str, Told]:
    return {
        name: None if mine[name] is None or theirs[name] is None else mine[name] + theirs[name]  # type: ignore[operator]
        for name in mine
    }
