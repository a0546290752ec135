"""Whether a kit is at work on this machine: FLARE's process of it, client, relay or server, and whether it will go on.

Does it run, with these files, and alone? Monitoring also asks for its certificate, its disk and its last reply.
"""

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from fedmr_med.deploy import kit as kits
from fedmr_med.deploy.manifest import certificate, identity
from fedmr_med.deploy.renewal import SOON
from fedmr_med.files import journal
from fedmr_med.sites import SITE_FILE

# FLARE reads these when a client starts; the site file counts for new job processes.
_READ_AT_START = (kits.PRIVACY, kits.AUTHORIZATION, kits.RESOURCES, SITE_FILE)
_CONNECTED = re.compile(r"^(\S+ \S+?),\d+ .*Connection \[\S+ \S+ => \S+ SSL server\] is created")
# The kernel tells when a process started only to within a second.
_CLOCK_SLACK = 2.0
_RECENT = 120
_TAKEN_OVER = 3
_PROGRAMS = ("client_train", "server_train", "app.relay.relay")
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
    replies, other = journal.read(kit / "released.jsonl"), rival(kit) if processes else None
    problems = {
        "it does not run": not processes,
        f"{len(processes)} processes run from this kit": len(processes) > 1,
        f"its certificate expired on {until:%Y-%m-%d}": until < now,
        f"only {free:.1f} GB are free": free < _LOW_DISK,
        f"its journal was changed: {''.join(replies.problems[:1])}": bool(replies.problems),
        f"{other}": other is not None,
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


@dataclass(frozen=True)
class StaleClient:
    """A running client that started before one of its files was changed."""

    pid: int
    started: float
    files: tuple[str, ...]

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.started))
        return (
            f"the client (process {self.pid}) runs since {clock}, but {', '.join(self.files)} changed since: restart it"
        )


def running_clients(kit: Path) -> list[psutil.Process]:
    """Return the FLARE client processes that run from a kit on this machine."""
    folder = str(kit.resolve())
    return [process for process, command in _flare_processes() if folder in command]


def stale_client(kit: Path) -> StaleClient | None:
    """Return the client that has to be restarted because its files changed after it started, if there is one."""
    for process in running_clients(kit):
        started = process.create_time()
        changed = [
            name
            for name in _READ_AT_START
            if (path := kit / "local" / name).exists() and path.stat().st_mtime > started + _CLOCK_SLACK
        ]
        if changed:
            return StaleClient(process.pid, started, tuple(changed))
    return None


def rival(kit: Path) -> str | None:
    """Return what is known of a second client under the same name; None if there seems to be none.

    FLARE lets both in, and each takes the connection from the other every few seconds. On this machine the other
    one shows as a process; anywhere else, by how often the own client had to connect again.
    """
    processes, folder = _flare_processes(), str(kit.resolve())
    own = [process for process, command in processes if folder in command]
    names = {part for _, command in processes if folder in command for part in command if part.startswith("uid=")}
    for process, command in processes:
        if folder not in command and names & set(command) and not _of_another_federation(kit, command):
            return f"process {process.pid} on this machine is a client of the same name, from another copy of the kit"
    if own and _recent_connections(kit / "log.txt", since=own[0].create_time()) > _TAKEN_OVER:
        return "its connection is lost again and again: a client of the same name may run on another machine"
    return None


def _of_another_federation(kit: Path, command: Sequence[str]) -> bool:
    """Whether a process runs from a kit that another authority signed: a hospital may be in two federations."""
    roots = [Path(part) / "startup" / "rootCA.pem" for part in command if part.startswith("/")]
    certificates = [root.read_bytes() for root in roots if root.is_file()]
    return bool(certificates) and (kit / "startup" / "rootCA.pem").read_bytes() not in certificates


def _flare_processes() -> list[tuple[psutil.Process, list[str]]]:
    found = [(process, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [entry for entry in found if any(program in part for part in entry[1] for program in _PROGRAMS)]


def _recent_connections(log: Path, *, since: float) -> int:
    """Return how often the client connected to the server lately, by its own log."""
    if not log.exists():
        return 0
    earliest = max(since, time.time() - _RECENT)
    matches = map(_CONNECTED.match, log.read_text(encoding="utf-8", errors="replace").splitlines())
    times = [time.mktime(time.strptime(match[1], "%Y-%m-%d %H:%M:%S")) for match in matches if match]
    return sum(moment >= earliest for moment in times)
