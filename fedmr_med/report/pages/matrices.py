"""Class against class: confusion matrices, and the distances between prototypes."""

import numpy as np
from markupsafe import Markup

from fedmr_med.evaluation.figures import Figures
from fedmr_med.report.elements import NONE, Section, figure, figures_side_by_side, join, shade, table
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import plane

_FEWEST_POINTS = 3  # that a plane says something about


def confusion(run: ChainRun) -> Section | None:
    """Return the confusion matrices: of all hospitals together, and folded those of each."""
    chosen = run.final
    if chosen is None or chosen.pooled_figures is None:
        return None
    classes = run.classes
    parts = [_matrix("All hospitals together", chosen.pooled_figures, classes)]
    for site, figures in sorted(chosen.figures.items()):
        folded = _matrix(site, figures, classes)
        parts.append(Markup("<details><summary>{}</summary>{}</details>").format(site, folded))
    return Section("confusion", "Confusion matrix", join(parts))


def _matrix(title: str, figures: Figures, classes: tuple[str, ...]) -> Markup:
    rows, shades = [], {}
    for row, (name, counts, own) in enumerate(zip(classes, figures.confusion, figures.classes, strict=False)):
        total = sum(counts)
        if own.status == "held_back":
            rows.append((name, *["held back"] * len(counts), ""))
            continue
        rows.append((name, *map(str, counts), f"{100 * counts[row] / total:.0f} %" if total else "no image"))
        for column, count in enumerate(counts, start=1):
            kind = "hit" if column - 1 == row else "miss"
            if count:
                shades[row, column] = shade(kind, count / total)
    caption = f"{title}: rows are the truth, columns the model's answer"
    return table(caption, ("truth", *classes, "sensitivity"), rows, classes=shades, matrix=True)


def prototypes(run: ChainRun) -> Section | None:
    """Return distances and ages of the prototypes of the last checkpoint."""
    classes = run.classes
    if not run.distances or len(run.distances) != len(classes):
        return None
    largest = max((d for row in run.distances for d in row if d is not None), default=0.0)
    rows, shades = [], {}
    for number, (name, row, age) in enumerate(zip(classes, run.distances, run.ages, strict=True)):
        old = NONE if age is None else "this round" if age == 0 else f"{age} rounds"
        cells = ("" if column == number else NONE if d is None else f"{d:.1f}" for column, d in enumerate(row))
        rows.append((name, *cells, old))
        for column, distance in enumerate(row, start=1):
            if distance and largest:
                shades[number, column] = shade("hit", distance / largest)
    caption = "Distance between the prototypes of two classes, and how long ago a hospital shared one"
    values = table(caption, ("class", *classes, "last shared"), rows, classes=shades, matrix=True)
    return Section("prototypes", "Prototypes", join([_map(run), values]))


def _map(run: ChainRun) -> Markup | None:
    """Return the prototypes in the plane that keeps their distances best: classical multidimensional scaling."""
    known = [label for label, row in enumerate(run.distances) if row[label] is not None]
    if len(known) < _FEWEST_POINTS:
        return None
    squares = np.array([[run.distances[i][j] for j in known] for i in known], dtype=float) ** 2
    centered = squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centered / 2)
    places = vectors[:, -2:] * np.sqrt(np.clip(values[-2:], 0, None))
    kept = values[-2:].clip(0).sum() / max(values.clip(0).sum(), 1e-12)
    names = [run.classes[label] for label in known]
    chart = plane(
        "Prototypes in the plane", {name: (x, y) for name, (y, x) in zip(names, places.tolist(), strict=True)}
    )
    caption = (
        f"Prototypes of the last round, at {100 * kept:.0f} % of their squared distances. Classes that are close are "
    )
    return figures_side_by_side([figure(chart, f"{caption}those that the features tell apart least.")])
