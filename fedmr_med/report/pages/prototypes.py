"""The global prototypes: how far apart, how old."""

from fedmr_med.report.elements import NONE, Section, join, paragraph, table
from fedmr_med.report.pages._run import names
from fedmr_med.report.sources import ChainRun

_SHADES = 5


def page(run: ChainRun) -> Section | None:
    """Return distances and ages of the prototypes of the last checkpoint."""
    classes = names(run)
    if not run.distances or len(run.distances) != len(classes):
        return None
    largest = max((d for row in run.distances for d in row if d is not None), default=0.0)
    rows, shades = [], {}
    for number, (name, row, age) in enumerate(zip(classes, run.distances, run.ages, strict=True)):
        old = NONE if age is None else "this round" if age == 0 else f"{age} rounds"
        rows.append((name, *(NONE if d is None else f"{d:.2f}" for d in row), old))
        for column, distance in enumerate(row, start=1):
            if distance and largest:
                shades[number, column] = f"hit{max(1, round(_SHADES * distance / largest))}"
    caption = "Distance between the prototypes of two classes, and how long ago a hospital shared one"
    note = paragraph("Classes whose prototypes are close are those the features tell apart least.")
    body = join([table(caption, ("class", *classes, "last shared"), rows, classes=shades), note])
    return Section("prototypes", "Prototypes", body)
