"""One readable line per hospital and round, for the server's log."""

from fedmr_med.config import JobConfig
from fedmr_med.wire.messages import SiteReply


def site_line(reply: SiteReply, job: JobConfig) -> str:
    """Return what a hospital's reply says, in one line."""
    parts = [f"{reply.samples} images"]
    if reply.scores is not None:
        parts.append(f"received model scores {reply.scores.balanced_accuracy:.3f} balanced accuracy")
    if reply.report is not None and reply.report.terms:
        parts.append("loss " + " + ".join(f"{value:.3g} {name}" for name, value in reply.report.terms.items()))
    names = job.task.class_names
    shared = [] if reply.prototypes is None else [names[i] for i in reply.prototypes.counts.nonzero().flatten()]
    parts.append(f"prototypes of {' '.join(shared)}" if shared else "no prototypes")
    parts.append(f"{megabytes(reply.bytes_up)} up")
    return f"round {reply.round + 1}/{job.federation.rounds} · {reply.site:<13} · " + " · ".join(parts)


def refused_line(site: str, reason: str) -> str:
    """Return why a hospital's reply does not count, in one line."""
    return f"refused the reply of {site}: {reason}"


def megabytes(size: int) -> str:
    """Return a size in MB, 10^6 bytes."""
    return f"{size / 1e6:.1f} MB"
