"""What it cost: bytes and seconds."""

from fedmr_med.report.elements import NONE, Section, join, paragraph, table
from fedmr_med.report.lines import duration, megabytes
from fedmr_med.report.pages._run import history, sites
from fedmr_med.report.sources import ChainRun


def page(run: ChainRun) -> Section | None:
    """Return traffic and time by hospital, and of the whole run."""
    past = history(run)
    if not past.rounds:
        return None
    rows = []
    for site in sites(run):
        parts = past.parts_of(site)
        seconds = [part.seconds for part in parts if part.seconds is not None]
        rows.append((
            site,
            megabytes(sum(part.bytes_up for part in parts)),
            megabytes(sum(part.bytes_down for part in parts)),
            duration(sum(seconds)) if seconds else NONE,
            duration(sum(seconds) / len(seconds)) if seconds else NONE,
        ))  # fmt: skip
    columns = ("hospital", "sent", "received", "local time", "per round")
    total = sum(record.seconds for record in past.rounds)
    said = f"{len(past.rounds)} rounds took {duration(total)}, {duration(total / len(past.rounds))} each."
    if past.head:
        said += f" The closed-form head took {duration(past.head.seconds)} and {megabytes(past.head.bytes_up)} sent."
    return Section("costs", "Traffic and time", join([paragraph(said), table("Traffic and time", columns, rows)]))
