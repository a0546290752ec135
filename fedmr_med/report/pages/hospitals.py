"""Hospital by hospital: how good the model is there, who shared what, which images were left out."""

from markupsafe import Markup

from fedmr_med.evaluation.records import RoundRecord
from fedmr_med.report import svg
from fedmr_med.report.elements import (
    NONE,
    Cell,
    Section,
    bullets,
    estimate,
    figure,
    figures_side_by_side,
    note,
    paragraph,
    table,
)
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import strips

_KEYS = {
    "sent-all": "trained, shared all classes",
    "sent-some": "shared some classes",
    "sent-none": "trained, shared none",
    "refused": "reply refused",
    "absent": "took no part",
}
SHARED, WITHHELD, OPTED_OUT, ABSENT = "shared", "withheld", "opted out", "took no part"


def forest(run: ChainRun) -> Section | None:
    """Return a forest plot of the mean recall by hospital."""
    chosen = run.final
    if chosen is None or len(chosen.sites) < 2:
        return None
    rows, cells = [], []
    answers = [(site, chosen.figures.get(site), score) for site, score in sorted(chosen.sites.items())]
    for name, figures, score in [*answers, ("all together", chosen.pooled_figures, chosen.pooled)]:
        if score is None:
            continue
        metric = "mean_recall" if score.balanced_accuracy is None else "balanced_accuracy"
        found = figures.metrics.get(metric) if figures else None
        low, high = (found.low, found.high) if found else (None, None)
        shown = estimate(figures.text(metric) if figures else f"{score.cell()} (no interval: it shares scalars alone)")
        cells.append((name, shown, score.coverage, str(score.samples)))
        if score.mean_recall is not None:
            rows.append((name, score.mean_recall, low, high))
    title = "Mean recall by hospital"
    values = table(title, ("hospital", "mean recall (95 % interval)", "over", "test images"), cells)
    caption = (
        "Lines are intervals of 95 %. A hospital is scored on the classes it holds and shares, so they differ. Over "
        "all classes of the task the mean recall is the balanced accuracy."
    )
    total = chosen.pooled is not None and chosen.pooled.mean_recall is not None
    picture = svg.forest(title, rows, xlabel="mean recall", total=total)
    charts = figures_side_by_side([figure(picture, caption)])
    return Section.of("forest", "Hospital by hospital", charts, values, note(chosen.why_missing))


def sharing(run: ChainRun) -> Section | None:
    """Return the map of hospitals and classes: shared, withheld, opted out; nobody knows where sums were secure."""
    past, classes = run.history, run.classes
    if not past.rounds or not classes or any(record.secure for record in past.rounds):
        return None
    rows = []
    for site in run.sites:
        taken = past.rounds_of(site)
        last = {name: record.round for record in taken for name in record.sites[site].shared_classes}
        end = taken[-1].round if taken else 0
        none = ABSENT if not taken else WITHHELD if last else OPTED_OUT
        # Until which round, if that is not the last one of its hospital.
        until = {name: SHARED if done == end else f"{SHARED} until round {done}" for name, done in last.items()}
        states = (until.get(name, none) for name in classes)
        rows.append((site, *(Cell(state, state.split()[0]) for state in states)))
    chosen = run.final
    few = [
        f"{site} shares no score of {', '.join(classes[label] for label in score.withheld if label < len(classes))}: "
        "it has no or few test images, right answers or wrong answers of it."
        for site, score in sorted(chosen.sites.items() if chosen else ())
        if score.withheld
    ]
    caption = (
        "Prototypes by hospital and class: ● shared, ○ withheld (few images of the class, none, or the hospital's "
        "decision), ✕ opted out, - took no part"
    )
    values = table(caption, ("hospital", *classes), rows, matrix=True)
    return Section.of("sharing", "Who shared what", values, _timeline(run), bullets(few))


def _timeline(run: ChainRun) -> Markup | None:
    """Return what each hospital did in each round; None for a single one."""
    rounds = run.history.rounds
    if len(rounds) < 2:
        return None
    most = len(run.classes)

    def cell(record: RoundRecord, site: str) -> tuple[str, str]:
        if site in record.refused:
            return "refused", "refused"
        if site not in record.sites:
            return "absent", ABSENT
        shared = len(record.sites[site].shared_classes)
        return ("sent-all" if shared == most else "sent-some" if shared else "sent-none"), f"{shared} of {most} classes"

    rows = {site: [cell(record, site) for record in rounds] for site in run.sites}
    chart = strips("Prototypes shared, round by round", rows)
    return figure(chart, "What each hospital did in each round.", keys=_KEYS)


def images(run: ChainRun) -> Section | None:
    """Return how many images each hospital used and left out."""
    past = run.history
    if not past.rounds:
        return None
    rows, skipped = [], 0
    for site in run.sites:
        parts = past.parts_of(site)
        last = parts[-1] if parts else None
        if last is None or last.images_total is None or last.images_skipped is None:
            rows.append((site, NONE, NONE, "not reported" if last else "took no part"))
            continue
        skipped += last.images_skipped
        used = last.images_total - last.images_skipped
        rows.append((site, str(used), str(last.images_skipped), "" if not last.images_skipped else "see its own log"))
    said = f"Images that cannot be read and were left out: {skipped}." if skipped else "Every image could be read."
    late = [f"{event.get('time', '')}: {event['event']} of {event['site']}" for event in run.events if "site" in event]
    told = table("Images by hospital", ("hospital", "used", "left out", ""), rows)
    return Section.of("images", "Images left out", paragraph(said, "note" if skipped else ""), told, bullets(late))
