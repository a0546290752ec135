"""The sections of a report. A section has nothing to say where it returns None."""

from collections.abc import Callable

from fedmr_med.report.elements import Section
from fedmr_med.report.pages import (
    classes,
    groups,
    headline,
    hospitals,
    matrices,
    metrics,
    pairs,
    privacy,
    rounds,
    settings,
    survey,
)
from fedmr_med.report.sources import ChainRun

CHAIN_PAGES: tuple[Callable[[ChainRun], Section | None], ...] = (
    headline.page,
    pairs.page,
    classes.page,
    matrices.confusion,
    hospitals.forest,
    groups.between,
    groups.subgroups,
    rounds.scores,
    hospitals.sharing,
    privacy.page,
    hospitals.images,
    metrics.page,
    matrices.prototypes,
    rounds.losses,
    rounds.costs,
    settings.page,
)
"""The sections about a run, in the order a clinician reads them."""

SURVEY_PAGES: tuple[Callable[[ChainRun], Section | None], ...] = (survey.page, settings.page)
"""The sections about a survey, which has no model."""
