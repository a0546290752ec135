"""The model at each hospital."""

from fedmr_med.report.elements import Section, figure, join, paragraph, table
from fedmr_med.report.pages._run import final, scores_of
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import forest


def page(run: ChainRun) -> Section | None:
    """Return a forest plot of the balanced accuracy by hospital."""
    chosen = final(run)
    if chosen is None or not (chosen.sites or chosen.pooled):
        return None
    rows, cells = [], []
    for site in [*sorted(chosen.sites), None]:
        figures, score = scores_of(chosen, site)
        if score is None:
            continue
        name = "all together" if site is None else site
        estimate = figures.metrics.get("balanced_accuracy") if figures else None
        low, high = (estimate.low, estimate.high) if estimate else (None, None)
        rows.append((name, score.balanced_accuracy, low, high))
        alone = f"{score.balanced_accuracy:.3f}, no interval: scalars alone"
        shown = figures.text("balanced_accuracy") if figures else alone
        cells.append((name, shown, str(score.samples)))
    title = "Balanced accuracy by hospital"
    picture = forest(title, rows, xlabel="balanced accuracy")
    values = table(title, ("hospital", "balanced accuracy (95 % interval)", "test images"), cells)
    caption = "Lines are intervals of 95 %. A hospital is scored on the classes it holds and shares, so they differ."
    held = f"Scores held back by: {', '.join(chosen.held_back)}." if chosen.held_back else ""
    parts = [figure(picture, caption, values), paragraph(held, "note") if held else None]
    return Section("forest", "Hospital by hospital", join(parts))
