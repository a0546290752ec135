"""Stopping a process at a named point, for tests of failures. Does nothing unless ``FEDMR_MED_FAULTS`` is set."""

import logging
import os
import time
from pathlib import Path

FAULTS_VARIABLE = "FEDMR_MED_FAULTS"


def reach(point: str) -> None:
    """Say that this process is at ``point``; stay there as long as a test wants it.

    ``FEDMR_MED_FAULTS`` names a folder. If it holds a file called ``point``, the process logs the point, writes
    ``<point>.reached`` beside it and waits until the file is gone.
    """
    folder = os.environ.get(FAULTS_VARIABLE)
    if folder is None:
        return
    armed = Path(folder) / point
    if not armed.exists():
        return
    logging.getLogger(__name__).warning("stopped at the point %r by %s", point, FAULTS_VARIABLE)
    armed.with_suffix(".reached").write_text(str(os.getpid()))
    while armed.exists():
        time.sleep(0.05)
