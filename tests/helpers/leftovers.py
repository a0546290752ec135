"""``python -m tests.helpers.leftovers COMMAND...``: run a command; fail if a process of it is alive afterwards.

Processes are recognized by a variable in their environment, which they hand down to those they start, also to those
that leave their session or lose their parent. So several suites can run on one machine at the same time. Those that
are left are named and ended.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from uuid import uuid4

import psutil

# Without the prefix of the toolkit's own variables, which some tests take out of the environment.
VARIABLE = "SUITE_RUN"
PATIENCE = 10.0
FAILED = 3


def processes_of(run: str) -> list[psutil.Process]:
    """Return the processes that carry the mark of a run and have not ended."""
    marked = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(VARIABLE) == run and process.status() != psutil.STATUS_ZOMBIE:
                marked.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it has just ended, or belongs to somebody else
    return marked


def survivors_of(run: str, patience: float = PATIENCE) -> list[psutil.Process]:
    """Return the processes of a run that do not end within ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while (left := processes_of(run)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def describe(process: psutil.Process) -> str:
    """Return the id, the age and the command of a process."""
    try:
        age = time.time() - process.create_time()
        return f"{process.pid}, {age:.0f} s old: {shlex.join(process.cmdline())[:300]}"
    except psutil.NoSuchProcess:
        return f"{process.pid}: has ended meanwhile"


def end(processes: Sequence[psutil.Process]) -> None:
    """Kill processes that are still there."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=PATIENCE)


def main(command: Sequence[str], patience: float = PATIENCE) -> int:
    """Run a command; return its exit code, or another than 0 if a process of it survives."""
    run = uuid4().hex
    process = subprocess.Popen(command, env=os.environ | {VARIABLE: run})
    # The command hears Ctrl-C itself. Whatever ends it, what it leaves is looked for.
    signal.signal(signal.SIGINT, lambda *_: None)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda *_: process.terminate())
    code = process.wait()
    left = survivors_of(run, patience)
    if not left:
        return code
    lines = [f"{len(left)} processes of the suite were alive after it, and are ended now:", *map(describe, left)]
    sys.stderr.write("\n  ".join(lines) + "\n")
    end(left)
    return code or FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
