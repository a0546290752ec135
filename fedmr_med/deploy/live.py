"""What a watcher sees, as a page in a file; and a command that is told when somebody is needed."""

import shlex
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmr_med.deploy.session import JobInfo
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_text
from fedmr_med.report.live import Standing, live_page

_LINES, _SAID = 30, 200
_PATIENCE = 60  # seconds for a command that is told


class LivePage:
    """Keeps a page up to date.

    Args:
        path: the HTML file; it is replaced as a whole.
        chain: id of the chain.
        clock: seconds, for the time that hospitals are waited for.
    """

    def __init__(self, path: Path, chain: str, clock: Callable[[], float] = time.monotonic):
        self._path, self._clock = path, clock
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._standing = Standing(chain, "", "waiting for the server")
        self._asked: tuple[Any, ...] = ()
        self._since = clock()
        self._write()

    def hear(self, line: str) -> None:
        """Take a line that is said to the person who watches."""
        self._lines.appendleft(f"{time.strftime('%H:%M:%S')} {line}")
        self._write()

    def see(self, info: JobInfo, state: str, connected: tuple[str, ...], progress: Mapping[str, Any] | None) -> None:
        """Take where a job stands; what was known of its rounds stays until there is more."""
        progress = progress or self._standing.progress
        asked = (info.job, progress and (progress["round"], progress.get("asked")))
        if asked != self._asked:
            self._asked, self._since = asked, self._clock()
        self._standing = Standing(
            self._standing.chain, info.name, f"job {info.job}: {state.lower()}", info.sites, connected, progress
        )
        self._write()

    def end(self, state: str) -> None:
        """Write the page for the last time."""
        progress = self._standing.progress
        if progress:
            progress = dict(progress) | {"answered": [], "waiting": [], "seconds_left": None}
        self._standing = replace(self._standing, state=state, progress=progress, ended=True)
        self._write()

    def _write(self) -> None:
        waited = self._clock() - self._since
        write_text(self._path, live_page(replace(self._standing, waited=waited, said=tuple(self._lines))))


def command_of(text: str) -> list[str]:
    """Return the words of a command, as a shell takes them apart.

    Raises:
        ConfigError: there is none, or its quotes do not match.
    """
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise ConfigError(f"--notify {text}: {e}.", code="config.value", key="--notify") from e
    if not words:
        raise ConfigError("--notify: give a command.", code="config.value", key="--notify")
    return words


def notify(command: Sequence[str], message: str) -> str | None:
    """Run a command with a message as its last argument; return why that failed, if it did."""
    try:
        done = subprocess.run([*command, message], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"--notify {command[0]}: {e}"
    said = done.stderr.strip()[:_SAID]
    return f"--notify {command[0]}: exit code {done.returncode} {said}".rstrip() if done.returncode else None
