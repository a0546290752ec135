"""What has left a hospital, by its own journal."""

from collections import Counter

from fedmr_med.privacy.explain import UPDATE_SPEAKS
from fedmr_med.report.elements import NONE, Section, bullets, paragraph, table
from fedmr_med.report.lines import megabytes
from fedmr_med.report.sources import AuditLog

_LISTED = 10


def page(log: AuditLog) -> Section:
    """Return each reply that left, by job, and whether the journal is intact."""
    jobs = dict.fromkeys(str(entry.get("job")) for entry in log.entries)
    sums, rows = [], []
    for job in jobs:
        mine = [entry for entry in log.entries if str(entry.get("job")) == job]
        classes = Counter(name for e in mine for name in e.get("parts", {}).get("prototypes", {}).get("classes", ()))
        empty = sum(entry.get("code") != "OK" for entry in mine)
        shared = ", ".join(f"{name} ({times}x)" for name, times in classes.items()) or "no class"
        size = sum(entry.get("bytes", 0) for entry in mine)
        sums.append((job, str(len(mine)), megabytes(size), shared, str(empty)))
    for entry in log.entries:
        parts = entry.get("parts", {})
        what = ", ".join(parts) or f"nothing: {entry.get('reason') or entry.get('code')}"
        size = megabytes(entry.get("bytes", 0))
        cells = (entry.get(key, NONE) for key in ("time", "task", "round"))
        rows.append((*map(str, cells), what, size, str(entry.get("metrics", NONE))))
    intact = (
        f"Every line of the journal follows the one before it, up to the head {log.head}. Lines that were cut off "
        "at its end leave no trace: `fedmr-med site audit --head` looks for a head that was written down elsewhere."
    )
    return Section.of(
        "audit",
        "What has left this hospital",
        paragraph("The journal is NOT INTACT.", "loud") if log.problems else paragraph(intact),
        bullets(log.problems[:_LISTED]),
        paragraph(f"And {len(log.problems) - _LISTED} more.") if len(log.problems) > _LISTED else None,
        table("By job", ("job", "replies", "sent", "prototypes", "replies without content"), sums),
        table("Reply by reply", ("time", "task", "round", "content", "size", "metrics"), rows),
        paragraph(UPDATE_SPEAKS),
    )
