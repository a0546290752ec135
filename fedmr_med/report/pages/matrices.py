"""Class against class: confusion matrices, and the distances between prototypes."""

from markupsafe import Markup

from fedmr_med.evaluation.figures import Figures
from fedmr_med.report.elements import NONE, Section, join, paragraph, shade, table
from fedmr_med.report.sources import ChainRun


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
    return table(
        f"{title}: rows are the truth, columns the answer", ("truth", *classes, "sensitivity"), rows, classes=shades
    )


def prototypes(run: ChainRun) -> Section | None:
    """Return distances and ages of the prototypes of the last checkpoint."""
    classes = run.classes
    if not run.distances or len(run.distances) != len(classes):
        return None
    largest = max((d for row in run.distances for d in row if d is not None), default=0.0)
    rows, shades = [], {}
    for number, (name, row, age) in enumerate(zip(classes, run.distances, run.ages, strict=True)):
        old = NONE if age is None else "this round" if age == 0 else f"{age} rounds"
        rows.append((name, *(NONE if d is None else f"{d:.2f}" for d in row), old))
        for column, distance in enumerate(row, start=1):
            if distance and largest:
                shades[number, column] = shade("hit", distance / largest)
    caption = "Distance between the prototypes of two classes, and how long ago a hospital shared one"
    note = paragraph("Classes whose prototypes are close are those the features tell apart least.")
    body = join([table(caption, ("class", *classes, "last shared"), rows, classes=shades), note])
    return Section("prototypes", "Prototypes", body)
