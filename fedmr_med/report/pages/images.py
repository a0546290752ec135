"""Images that could not be used, replies that did not count."""

from fedmr_med.report.elements import NONE, Section, bullets, join, paragraph, table
from fedmr_med.report.pages._run import history, sites
from fedmr_med.report.sources import ChainRun


def page(run: ChainRun) -> Section | None:
    """Return how many images each hospital used and left out."""
    past = history(run)
    if not past.rounds:
        return None
    rows, skipped = [], 0
    for site in sites(run):
        parts = past.parts_of(site)
        last = parts[-1] if parts else None
        if last is None or last.images_total is None or last.images_skipped is None:
            rows.append((site, NONE, NONE, "not told" if last else "took no part"))
            continue
        skipped += last.images_skipped
        used = last.images_total - last.images_skipped
        rows.append((site, str(used), str(last.images_skipped), "" if not last.images_skipped else "see its own log"))
    said = "Every image could be read." if not skipped else f"{skipped} images could not be read and were left out."
    late = [f"{event.get('time', '')}: {event.get('event', '')} of {event.get('site', '?')}" for event in run.events]
    parts_out = [
        paragraph(said, "note" if skipped else ""),
        table("Images by hospital", ("hospital", "used", "left out", ""), rows),
        bullets(late) if late else None,
    ]
    return Section("images", "Images left out", join(parts_out))
