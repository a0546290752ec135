"""Whose turn it is among the simulated sites of one machine.

The simulator starts all sites at once. One per core works at a time: more need more memory and end no sooner. Of those
that wait, the one with most to do goes first, so that a round does not end with one large site on one core.
"""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedmr_med.files import is_locked, locked, write_text


@contextmanager
def turn(folder: Path, site: str, cores: int) -> Iterator[None]:
    """Hold one of ``cores`` during the body; wait for it behind sites whose last turn took longer.

    A process that ends, however it ends, neither works nor waits any more: both are file locks in a folder that the
    sites of one run have in common.
    """
    free = [folder / f"core-{core}" for core in range(cores)]
    waiting, last = folder / f"{site}.waiting", folder / f"{site}.seconds"
    own = _seconds(last)

    def longest() -> bool:
        others = (path for path in folder.glob("*.waiting") if path != waiting)
        return not any(_seconds(path.with_suffix(".seconds")) > own and is_locked(path) for path in others)

    with ExitStack() as queue, ExitStack() as core:
        queue.enter_context(locked(waiting, patience=math.inf))
        core.enter_context(locked(*free, patience=math.inf, when=longest))
        queue.close()
        started = time.monotonic()
        yield
        write_text(last, str(time.monotonic() - started))


def _seconds(path: Path) -> float:
    """Return how long a site's last turn took; a site that had none is taken for long."""
    return float(path.read_text()) if path.exists() else math.inf
