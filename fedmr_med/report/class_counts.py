"""Which site holds how many images of which class: as tables for the terminal and for a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from fedmr_med.data.demo import RARE
from fedmr_med.data.describe import Description
from fedmr_med.data.folds import FoldName
from fedmr_med.files import write_text
from fedmr_med.report.document import Part, page_of
from fedmr_med.report.elements import Section, counted, table

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


def site_tables(description: Description) -> "Group":
    """Return the counts of all sites for the terminal, one table per fold, rare classes marked."""
    from rich.console import Group

    return Group(_table(description, "train"), _table(description, "test"))


def unreadable_lines(description: Description) -> list[str]:
    """Return what was found wrong with the images, one line each."""
    lines = []
    for site in description.sites:
        if site.unreadable:
            count = len(site.unreadable)
            lines.append(f"{site.name}: {count} images cannot be read, such as {site.unreadable[0]}")
        lines += [f"{site.name}: {warning}" for warning in site.warnings]
    return lines


def write_counts(description: Description, path: Path) -> None:
    """Write the counts of all sites as an HTML page with a table for each fold."""
    demo = any(site.is_demo for site in description.sites)
    sections = []
    for fold in get_args(FoldName):
        counts = np.stack([site.counts(fold) for site in description.sites])
        title, names = f"{fold}: {counts.sum()} images", [site.name for site in description.sites]
        sections.append(Section(fold, title, counts_map(title, names, description.class_names, counts)))
    write_text(path, page_of([Part("sites", "Images by site and class", demo, tuple(sections))]))


def counts_map(title: str, sites: Sequence[str], classes: Sequence[str], counts: npt.NDArray[np.int64]) -> Markup:
    """Return a table of (sites, classes) counts, shaded on a logarithmic scale."""
    most = int(counts.max())
    rows = [
        (site, *(counted(count, most) for count in held)) for site, held in zip(sites, counts.tolist(), strict=True)
    ]
    return table(title, ("site", *classes), rows, matrix=True)


def _table(description: Description, fold: FoldName) -> "Table":
    from rich.table import Table

    sites = description.sites
    counts = np.stack([site.counts(fold) for site in sites])
    demo = any(site.is_demo for site in sites)
    table = Table(title=f"{fold}: {counts.sum()} {'generated pictures (demo)' if demo else 'images'}")
    table.add_column("site", no_wrap=True)
    for name in (*description.class_names, "all"):
        table.add_column(name, justify="right")
    rare = RARE if fold == "train" else 0
    if fold == "train":
        table.caption = f"yellow: fewer than {RARE} images"
    else:
        table.add_column("leaked", justify="right")
        table.caption = "leaked: images of a patient or lesion that is in the train fold too"
    for site, row in zip(sites, counts, strict=True):
        leaked = [] if fold == "train" else ["?" if site.leaked is None else str(site.leaked)]
        cells = (f"[yellow]{count}[/yellow]" if 0 < count < rare else str(count or "·") for count in row)
        table.add_row(site.name, *cells, str(row.sum()), *leaked)
    table.add_section()
    table.add_row("all", *(str(count) for count in counts.sum(axis=0)), str(counts.sum()))
    return table
