"""A budget of wall time for a command that resumes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

OUT_OF_HOURS_CODE = 75
"""Exit code of a command whose hours are over: the same command goes on. (EX_TEMPFAIL of sysexits.h)"""


class OutOfHours(KeyboardInterrupt):
    """The hours of a command are over. Like Ctrl-C, it must not be taken for the failure of a run."""


@contextmanager
def limited_to(hours: float | None) -> Iterator[None]:
    """Stop the body after some hours, wherever it is, as Ctrl-C would; None lets it take its time.

    Only in a process's main thread.

    Raises:
        OutOfHours: the hours are over.
    """
    if hours is None:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfHours

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 3600 * hours)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
