"""The sections of a report, one file each. A section has nothing to say where it returns None."""

from collections.abc import Callable

from fedmr_med.report.elements import Section
from fedmr_med.report.pages import (
    classes,
    confusion,
    costs,
    curves,
    forest,
    headline,
    images,
    losses,
    metrics,
    privacy,
    prototypes,
    settings,
    sharing,
)
from fedmr_med.report.sources import ChainRun

CHAIN_PAGES: tuple[Callable[[ChainRun], Section | None], ...] = (
    headline.page,
    forest.page,
    curves.page,
    metrics.page,
    classes.page,
    confusion.page,
    sharing.page,
    prototypes.page,
    losses.page,
    costs.page,
    images.page,
    privacy.page,
    settings.page,
)
"""The sections about a run, in the order a clinician reads them."""
