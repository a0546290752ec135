"""How the score developed."""

from fedmr_med.report.elements import Section, figure, join, legend, number, table
from fedmr_med.report.pages._run import history, sites
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import lines


def page(run: ChainRun) -> Section | None:
    """Return the balanced accuracy by round, per hospital and pooled."""
    evaluations = sorted(history(run).evaluations, key=lambda e: e.round)
    series = {
        site: [(float(e.round), e.sites[site].balanced_accuracy) for e in evaluations if site in e.sites]
        for site in sites(run)
    }
    series["all together"] = [(float(e.round), e.pooled.balanced_accuracy) for e in evaluations if e.pooled]
    series = {name: points for name, points in series.items() if points}
    if not series:
        return None
    title = "Balanced accuracy of the global model on each hospital's test images"
    rounds = [e.round for e in evaluations]
    rows = []
    for name, points in series.items():
        known = dict(points)
        rows.append((name, *(number(known.get(float(r))) for r in rounds)))
    values = table(title, ("hospital", *(f"round {r}" for r in rounds)), rows)
    chart = lines(title, series, xlabel="rounds done", ylabel="balanced accuracy", yrange=(0, 1))
    caption = "Round 0 is the model before any training."
    return Section("curves", "Round by round", join([legend(list(series)), figure(chart, caption, values)]))
