"""Pictures of a comparison, by matplotlib."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedmr_med.evaluation.results import RunResult
from fedmr_med.files import atomic_writer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = Mapping[str, Sequence[Sequence[float]]]
"""Curves by label: one sequence of values per seed."""


def accuracy_series(runs: Sequence[RunResult]) -> dict[str, list[list[float]]]:
    """Return the accuracy in percent by round of the entries of ``results.json``, by label."""
    series: dict[str, list[list[float]]] = {}
    for run in runs:
        values = [100 * round_.accuracy for round_ in run.rounds if round_.accuracy is not None]
        if values:
            series.setdefault(run.label or run.method, []).append(values)
    return series


def draw_curves(series: Series, *, ylabel: str, title: str = "", xlabel: str = "round") -> "Figure":
    """Draw the mean over the seeds by round, with a band from the lowest to the highest seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for label, seeds in series.items():
        # Runs that were stopped differ in length: as far as all of them go.
        values = np.array([seed[: min(map(len, seeds))] for seed in seeds])
        rounds = np.arange(1, values.shape[1] + 1)
        (line,) = axes.plot(rounds, values.mean(0), label=label, linewidth=1.5, marker="." if len(rounds) < 4 else "")
        if len(seeds) > 1:
            axes.fill_between(rounds, values.min(0), values.max(0), color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    if series:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure


def save_png(figure: "Figure", path: Path) -> None:
    """Write a figure as a PNG, atomically."""
    with atomic_writer(path) as stream:
        figure.savefig(stream, format="png", dpi=120)


def as_svg(figure: "Figure") -> str:
    """Return a figure as an SVG element, the same text for the same figure."""
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "fedmr_med", "svg.fonttype": "none"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]
