"""Whether a kit is at work, for monitoring: the long-lived process, its certificate, its disk, its last reply."""

import shutil
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedmr_med.deploy.client_process import rival, running_clients
from fedmr_med.deploy.manifest import certificate, identity
from fedmr_med.deploy.renewal import SOON
from fedmr_med.files import journal

_GIGABYTE = 10**9
_LOW_DISK = 5.0


@dataclass(frozen=True)
class Health:
    """How a server or site is doing.

    Attributes:
        process: id of the long-lived process; None if there is none.
        since: when it was started.
        last_reply: when something was last sent, by the site's own journal; None at the server.
        problems: what needs a person now.
        warnings: what will.
    """

    time: str
    process: int | None
    since: str | None
    certificate_until: str
    disk_free_gb: float
    last_reply: str | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing needs a person now."""
        return not self.problems

    def as_values(self) -> dict[str, Any]:
        """Return it as plain values, ``ok`` first."""
        return {"ok": self.ok, **asdict(self)}


def health(kit: Path) -> Health:
    """Look at the kit of a server or site on this machine.

    Raises:
        ConfigError: the folder is not a kit, or its journal cannot be read.
    """
    now = datetime.now(UTC)
    until = certificate(identity(kit, ".crt")).not_valid_after_utc
    processes = running_clients(kit)
    free = shutil.disk_usage(kit).free / _GIGABYTE
    replies = journal.read(kit / "released.jsonl")
    problems = {
        "it does not run": not processes,
        f"{len(processes)} processes run from this kit": len(processes) > 1,
        f"its certificate expired on {until:%Y-%m-%d}": until < now,
        f"only {free:.1f} GB are free": free < _LOW_DISK,
        f"its journal was changed: {''.join(replies.problems[:1])}": bool(replies.problems),
        f"{rival(kit)}": processes and rival(kit) is not None,
    }
    return Health(
        time=now.isoformat(timespec="seconds"),
        process=processes[0].pid if processes else None,
        since=_clock(processes[0].create_time()) if processes else None,
        certificate_until=f"{until:%Y-%m-%d}",
        disk_free_gb=round(free, 1),
        last_reply=str(replies.entries[-1].get("time")) if replies.entries else None,
        problems=tuple(text for text, holds in problems.items() if holds),
        warnings=(f"its certificate expires on {until:%Y-%m-%d}",) if now < until < now + SOON else (),
    )


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
