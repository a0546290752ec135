"""What is taken for what."""

from markupsafe import Markup

from fedmr_med.evaluation.figures import Figures
from fedmr_med.report.elements import Section, join, table
from fedmr_med.report.pages._run import final, names
from fedmr_med.report.sources import ChainRun

_SHADES = 5


def page(run: ChainRun) -> Section | None:
    """Return the confusion matrices: of all hospitals together, and folded those of each."""
    chosen = final(run)
    if chosen is None or chosen.pooled_figures is None:
        return None
    classes = names(run)
    parts = [_matrix("All hospitals together", chosen.pooled_figures, classes)]
    for site, found in sorted(chosen.figures.items()):
        folded = _matrix(site, found, classes)
        parts.append(Markup("<details><summary>{}</summary>{}</details>").format(site, folded))
    return Section("confusion", "What is taken for what", join(parts))


def _matrix(title: str, found: Figures, classes: tuple[str, ...]) -> Markup:
    rows, shades = [], {}
    for row, (name, counts, own) in enumerate(zip(classes, found.confusion, found.classes, strict=False)):
        total = sum(counts)
        if own.status == "held_back":
            rows.append((name, *["held back"] * len(counts), ""))
            continue
        rows.append((name, *map(str, counts), f"{100 * counts[row] / total:.0f} %" if total else "no image"))
        for column, count in enumerate(counts, start=1):
            kind = "hit" if column - 1 == row else "miss"
            if count:
                shades[row, column] = f"{kind}{max(1, round(_SHADES * count / total))}"
    return table(f"{title}: rows are the truth, columns the answer", ("truth", *classes, "found"), rows, classes=shades)
