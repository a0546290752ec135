"""Watching a chain until its last round, through lost jobs and a server that comes and goes."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fedmr_med.deploy import chain as chains
from fedmr_med.deploy.session import JobInfo, JobState, ServerLostError, Session, has_ended
from fedmr_med.errors import DeployError
from fedmr_med.report.lines import duration

# A job that FLARE calls running needs a moment until its process shows up, and again until its end is written.
_GHOST_POLLS = 5
# Asked before its job's process is ready, FLARE's server logs errors.
_QUIET_POLLS = 4
_MAX_IDLE_JOBS = 3

_ERROR = re.compile(r"FATAL_SYSTEM_ERROR received: ([^\n]+)")

T = TypeVar("T")


@dataclass(frozen=True)
class Watched:
    """What a chain ended with: its jobs, first to last, and FLARE's word for the last one."""

    chain: str
    jobs: tuple[str, ...]
    status: str


class Watcher:
    """Follows a chain and says in one line each what changes.

    Args:
        session: connection of the person who submitted the chain.
        chain: its id.
        say: takes the lines.
        poll: seconds between two looks.
        patience: seconds to wait for a server that does not answer, or for hospitals that are not connected.
        see: takes a job, its status, the hospitals that are connected, and what its controller says, at every look.
        call: takes a sentence when somebody may be needed.
    """

    def __init__(
        self,
        session: Session,
        chain: str,
        say: Callable[[str], None],
        *,
        poll: float = 2.0,
        patience: float = 3600.0,
        see: Callable[[JobInfo, str, tuple[str, ...], dict[str, Any] | None], None] | None = None,
        call: Callable[[str], None] = lambda sentence: None,
    ):
        self.session = session
        self.chain = chain
        self.poll = poll
        self.patience = patience
        self._say, self._see, self._call = say, see, call
        self._last = ""
        self._said: set[str] = set()
        self._standing: tuple[int, tuple[str, ...]] = (-1, ())
        self._best_round = -1

    def run(self, *, resume: bool) -> Watched:
        """Watch until the chain is complete.

        Args:
            resume: submit a follow-up whenever a job ends early, as often as needed.

        Raises:
            DeployError: a job ended early and is not to be resumed, or several in a row got nowhere though the
                server stood.
        """
        idle = 0
        while True:
            jobs = self._patiently(lambda: chains.jobs(self.session, self.chain))
            last, before = jobs[-1], self._best_round
            state = self._follow(last)
            if state.status == "FINISHED:COMPLETED":
                self._call(f"The chain {self.chain} is complete.")
                return Watched(self.chain, tuple(info.job for info in jobs), state.status)
            reason = f"The job {last.job} ended early ({self._describe(last.job, state)})."
            self._call(reason)
            if not resume:
                raise DeployError(
                    f"{reason} `fedmr-med deploy watch {self.chain} --resume` resumes it.", code="chain.ended-early"
                )
            # A job that lost its server may have closed a round since the last look; only others can be hopeless.
            idle = 0 if state.restarted or self._best_round > before else idle + 1
            if idle >= _MAX_IDLE_JOBS:
                raise DeployError(
                    f"{reason} The last {idle} jobs made no progress; see the server's log.", code="chain.no-progress"
                )
            self.say(reason)
            self._wait_for_hospitals(last)
            job = self._patiently(lambda: chains.resume(self.session, self.chain))
            self.say(f"follow-up {job} resumes after the last complete round")

    def say(self, line: str) -> None:
        """Pass on a line unless it is the last one again."""
        if line != self._last:
            self._last = line
            self._say(line)

    def _show(self, progress: dict[str, Any]) -> None:
        """Say what each site did, once; where the chain stands when a round begins, and who is still waited for."""
        new = [line for line in progress.get("lines", ()) if line not in self._said]
        self._said.update(new)
        for line in new:
            self.say(line)
        standing = (progress["round"], tuple(progress["waiting"]))
        begins = standing[0] != self._standing[0]
        # While sites answer one after the other, their own lines are enough.
        if begins or (not new and standing != self._standing):
            self._standing = standing
            self.say(progress_line(progress))

    def _follow(self, info: JobInfo) -> JobState:
        """Look at a job until it has ended."""
        ghost = running = 0
        job = info.job
        while True:
            state = self._patiently(lambda: self.session.state(job))
            if has_ended(state.status):
                self._look(info, state, None)  # a job may end before it was looked at once
                return state
            ghost = 0 if state.alive else ghost + 1
            if ghost >= _GHOST_POLLS or (ghost and state.restarted):
                return state
            running += state.status == "RUNNING"
            progress = self._patiently(lambda: self.session.progress(job)) if running > _QUIET_POLLS else None
            self._look(info, state, progress)
            if progress:
                self._best_round = max(self._best_round, int(progress["round"]))
                self._show(progress)
            else:
                waits = self._shortage(info) if state.status == "SUBMITTED" else None
                self.say(f"job {job}: {waits or state.status.lower()}")
            time.sleep(self.poll)

    def _look(self, info: JobInfo, state: JobState, progress: dict[str, Any] | None) -> None:
        if self._see:
            self._see(info, state.status, self._patiently(self.session.hospitals), progress)

    def _shortage(self, info: JobInfo) -> str | None:
        return chains.shortage(info, self._patiently(self.session.hospitals))

    def _wait_for_hospitals(self, info: JobInfo) -> None:
        """FLARE tries to start a job only a few times, so there must be enough hospitals first."""
        deadline = time.monotonic() + self.patience
        while waits := self._shortage(info):
            if time.monotonic() > deadline:
                raise DeployError(f"The chain {self.chain} {waits}.", code="chain.too-few-sites")
            self.say(f"waiting: the chain {waits}")
            time.sleep(self.poll)

    def _describe(self, job: str, state: JobState) -> str:
        """Return why a job ended, in the server's own words if it left any."""
        if not has_ended(state.status) and not state.alive:
            waits = "its process is gone, and the server waits for a hospital that vanished"
            return "the server was restarted under it" if state.restarted else waits
        problems = [line for line in state.detail if not line.endswith(": OK")]
        # The last error of ours in the log, without FLARE's marks around it.
        said = _ERROR.findall(self._patiently(lambda: self.session.server_log(job)))[-1:]
        return "; ".join([state.status, *problems, *map(str.strip, said)])

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while the server does not answer."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return ask()
            except ServerLostError as e:
                if time.monotonic() > deadline:
                    raise
                self.say(f"waiting: {e}")
                time.sleep(self.poll)


def progress_line(progress: dict[str, Any]) -> str:
    """Return round, hospitals in and out, metric and time left, in one line."""
    parts = [f"round {progress['round'] + 1}/{progress['rounds']}"]
    if progress["round"] >= progress["rounds"]:
        others = {"head": "making the closed-form head", "survey": "asking what the hospitals hold"}
        doing = others.get(progress.get("asked", ""), "scoring the model")
        parts = [f"all {progress['rounds']} rounds done, {doing}" if progress["rounds"] else doing]
    parts.append(f"in: {' '.join(progress['answered']) or '-'}")
    parts.append(f"waiting for: {' '.join(progress['waiting']) or '-'}")
    if progress["refused"]:
        parts.append("refused: " + "; ".join(f"{site} ({why})" for site, why in progress["refused"].items()))
    if progress.get("score"):
        parts.append(progress["score"])
    if progress["seconds_left"] is not None:
        parts.append(f"about {duration(progress['seconds_left'])} left")
    return " · ".join(parts)
