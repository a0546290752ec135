"""Class against class: confusion matrices, and the distances between prototypes."""

import numpy as np
from markupsafe import Markup

from fedmr_med.evaluation.figures import Figures
from fedmr_med.report.elements import HELD_BACK, NONE, Section, figure, figures_side_by_side, folded, shaded, table
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import plane

_FEWEST_POINTS = 3  # that a plane says something about


def confusion(run: ChainRun) -> Section | None:
    """Return the confusion matrices: of all hospitals together, and folded those of each."""
    chosen = run.final
    if chosen is None or chosen.pooled_figures is None:
        return None
    together = _matrix("All hospitals together", chosen.pooled_figures, run.classes)
    each = (folded(site, _matrix(site, figures, run.classes)) for site, figures in sorted(chosen.figures.items()))
    return Section.of("confusion", "Confusion matrix", together, *each)


def _matrix(title: str, figures: Figures, classes: tuple[str, ...]) -> Markup:
    rows = []
    for label, (name, counts, own) in enumerate(zip(classes, figures.confusion, figures.classes, strict=False)):
        total = sum(counts)
        if own.status == "held_back":
            rows.append((name, *[HELD_BACK] * len(counts), ""))
            continue
        cells = (
            shaded(str(count), "hit" if answer == label else "miss", count / max(total, 1))
            for answer, count in enumerate(counts)
        )
        rows.append((name, *cells, f"{100 * counts[label] / total:.0f} %" if total else "no image"))
    caption = f"{title}: rows are the truth, columns the model's answer"
    return table(caption, ("truth", *classes, "sensitivity"), rows, matrix=True)


def prototypes(run: ChainRun) -> Section | None:
    """Return distances and ages of the prototypes of the last checkpoint."""
    classes = run.classes
    if not run.distances or len(run.distances) != len(classes):
        return None
    largest = max((d for row in run.distances for d in row if d is not None), default=0.0)
    rows = []
    for label, (name, row, age) in enumerate(zip(classes, run.distances, run.ages, strict=True)):
        old = NONE if age is None else "this round" if age == 0 else f"{age} rounds"
        texts = ("" if other == label else NONE if d is None else f"{d:.1f}" for other, d in enumerate(row))
        cells = (shaded(text, "hit", d / largest if d else 0) for text, d in zip(texts, row, strict=True))
        rows.append((name, *cells, old))
    caption = "Distance between the prototypes of two classes, and how long ago a hospital shared one"
    values = table(caption, ("class", *classes, "last shared"), rows, matrix=True)
    return Section.of("prototypes", "Prototypes", _map(run), values)


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
    points = {run.classes[label]: (x, y) for label, (y, x) in zip(known, places.tolist(), strict=True)}
    caption = (
        f"Prototypes of the last round, at {100 * kept:.0f} % of their squared distances. Classes that are close are "
        "those that the features tell apart least."
    )
    return figures_side_by_side([figure(plane("Prototypes in the plane", points), caption)])
