"""Which site holds how many images of which class: as tables for the terminal and as heat maps."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedmr_med.data.demo import RARE
from fedmr_med.data.describe import Description
from fedmr_med.data.folds import FoldName
from fedmr_med.files import atomic_writer

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


def draw_sites(description: Description, path: Path) -> None:
    """Write the counts of all sites as a heat map, one panel per fold, to a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    names, sites = description.class_names, description.sites
    figure = Figure(figsize=(3 + 1.2 * len(names), 1.6 + 0.4 * len(sites)), layout="constrained")
    folds: tuple[FoldName, ...] = ("train", "test")
    for axes, fold in zip(figure.subplots(1, 2, sharey=True), folds, strict=True):
        counts = np.stack([site.counts(fold) for site in sites])
        axes.imshow(np.ma.masked_equal(counts, 0), cmap="viridis", norm=LogNorm(1, max(2, counts.max())), aspect="auto")
        for (row, column), count in np.ndenumerate(counts):
            dark = 0 < count < np.sqrt(max(2, counts.max()))
            axes.text(column, row, f"{count}", ha="center", va="center", fontsize=8, color="w" if dark else "k")
        axes.set_xticks(range(len(names)), names, rotation=45)
        axes.set_yticks(range(len(sites)), [site.name for site in sites])
        axes.set_title(f"{fold}: {counts.sum()} images")
    if any(site.is_demo for site in sites):
        figure.suptitle("generated demo")
    with atomic_writer(path) as stream:
        FigureCanvasAgg(figure).print_png(stream)


def draw_counts(
    table: npt.NDArray[np.int64], path: Path, *, clients: Sequence[str], classes: Sequence[str], title: str = ""
) -> None:
    """Write a heat map of a (clients, classes) table of counts as a PNG; small tables show the numbers too.

    Args:
        table: (clients, classes) counts.
        path: the PNG, replaced atomically.
        clients, classes: names for the two axes.
        title: one line above the picture.
    """
    from matplotlib.figure import Figure

    rows, columns = table.shape[1], table.shape[0]
    width, height = np.clip(2.5 + 0.45 * columns, 5, 24), np.clip(1.8 + 0.3 * rows, 3, 18)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(table.T, aspect="auto", cmap="viridis", vmin=0)
    figure.colorbar(image, ax=axes, label="samples")
    axes.set(xlabel="client", ylabel="class", title=title)
    # At most about 50 names fit on an axis.
    for axis, names in ((axes.xaxis, clients), (axes.yaxis, classes)):
        step = -(-len(names) // 50)
        axis.set_ticks(range(0, len(names), step), list(names)[::step])
    axes.tick_params(axis="x", rotation=90 if max(map(len, clients)) > 3 else 0)
    if columns <= 20 and rows <= 20:
        for (client, c), count in np.ndenumerate(table):
            color = "black" if count > table.max() / 2 else "white"
            axes.text(client, c, str(count), ha="center", va="center", color=color, fontsize=7)
    with atomic_writer(path) as stream:
        figure.savefig(stream, format="png", dpi=120)


def _table(description: Description, fold: FoldName) -> "Table":
    from rich.table import Table

    sites = description.sites
    counts = np.stack([site.counts(fold) for site in sites])
    demo = any(site.is_demo for site in sites)
    table = Table(title=f"{fold}: {counts.sum()} {'generated pictures (demo)' if demo else 'images'}")
    table.add_column("site", no_wrap=True)
    for name in (*description.class_names, "all"):
        table.add_column(name, justify="right")
    if fold == "train":
        table.caption = f"yellow: fewer than {RARE} images"
    else:
        table.add_column("leaked", justify="right")
        table.caption = "leaked: images of a patient or lesion that is in the train fold too"
    for site, row in zip(sites, counts, strict=True):
        leaked = [] if fold == "train" else ["?" if site.leaked is None else str(site.leaked)]
        table.add_row(site.name, *(_cell(count, fold) for count in row), str(row.sum()), *leaked)
    table.add_section()
    table.add_row("all", *(str(count) for count in counts.sum(axis=0)), str(counts.sum()))
    return table


def _cell(count: int, fold: FoldName) -> str:
    """Return the text of one cell: a dot for none, yellow for few training images."""
    if not count:
        return "·"
    return f"[yellow]{count}[/yellow]" if fold == "train" and count < RARE else str(count)
