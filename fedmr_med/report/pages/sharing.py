"""Who shared which prototypes."""

from fedmr_med.report.elements import Section, bullets, join, table
from fedmr_med.report.pages._run import final, history, names, sites
from fedmr_med.report.sources import ChainRun

SHARED, WITHHELD, OPTED_OUT, ABSENT = "shared", "withheld", "opted out", "took no part"


def page(run: ChainRun) -> Section | None:
    """Return the map of hospitals and classes: shared, withheld, opted out; nobody knows where sums were secure."""
    past, classes = history(run), names(run)
    if not past.rounds or not classes or any(record.secure for record in past.rounds):
        return None
    rows, marks = [], {}
    for number, site in enumerate(sites(run)):
        taken = past.parts_of(site)
        shared = {name for part in taken for name in part.shared_classes}
        none = ABSENT if not taken else WITHHELD if shared else OPTED_OUT
        states = [SHARED if name in shared else none for name in classes]
        rows.append((site, *states))
        for column, state in enumerate(states, start=1):
            marks[number, column] = state.split()[0]
    chosen = final(run)
    few = [
        f"{site} lets no score of {', '.join(classes[label] for label in score.withheld if label < len(classes))} out: "
        "it has few images of it, or none."
        for site, score in sorted(chosen.sites.items() if chosen else ())
        if score.withheld
    ]
    caption = "Prototypes by hospital and class; withheld: few images of the class, none, or the hospital's decision"
    parts = [table(caption, ("hospital", *classes), rows, classes=marks), bullets(few) if few else None]
    return Section("sharing", "Who shared what", join(parts))
