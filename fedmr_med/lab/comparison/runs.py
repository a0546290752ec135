"""What a comparison is made of: runs with a name, a folder and a result, which resume where they stopped.

How far a run is stands in a file of its folder: the same for whoever looks, from wherever the run is done.
"""

import json
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel

from fedmr_med.errors import FedMRError
from fedmr_med.evaluation.results import read_result, write_result
from fedmr_med.files import locked, write_text
from fedmr_med.process import THREADS_VARIABLE, set_threads
from fedmr_med.report.progress import Progress, Titled

RESULT, ERROR, LOCK, PROGRESS = "result.json", "error.txt", ".lock", "progress.json"
_PROGRESS_SECONDS = 0.2  # between two writings of the progress, which some runs report a hundred times a second

R = TypeVar("R", bound=BaseModel)
R_co = TypeVar("R_co", bound=BaseModel, covariant=True)


def write_progress(folder: Path, progress: Progress) -> None:
    """Write down how far the run in ``folder`` is; nothing but what people see depends on it."""
    draft = folder / f"{PROGRESS}.tmp"
    with suppress(OSError):  # a full disk is for the run's results to tell
        draft.write_text(json.dumps({"done": progress.done, "note": progress.note}), encoding="utf-8")
        draft.replace(folder / PROGRESS)


def read_progress(folder: Path) -> tuple[int, str]:
    """Return the completed steps of the run in ``folder`` and its note; 0 if it has not begun."""
    try:
        content = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        return int(content["done"]), str(content["note"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


OnProgress = Callable[[Progress], None]


class Run(Titled, Protocol[R_co]):
    """One run of a comparison. It can be pickled: another process, or another machine, may execute it."""

    @property
    def name(self) -> str:
        """Name of its folder. It holds a digest of all settings that the result depends on."""

    @property
    def result_type(self) -> type[R_co]:
        """The model of its result."""

    def execute(self, folder: Path, on_progress: OnProgress) -> R_co:
        """Do the run, or the rest of it, with what it keeps in ``folder``.

        Raises:
            FedMRError: it failed; what it has reached stays in ``folder``.
        """

    def failed(self, error: str) -> R_co:
        """Return the result of a run that failed."""

    def clean_up(self, folder: Path) -> None:
        """Remove what only a resumption needs; called once the result is safe on disk."""


def result_of(run: Run[R], folder: Path) -> R | None:
    """Return the result of a run that has ended before; None if it has not. ``folder`` holds one folder per run.

    Raises:
        ResultsError: the result is damaged, or of another version.
    """
    path = folder / run.name / RESULT
    return read_result(path, run.result_type) if path.exists() else None


def perform(run: Run[R], folder: Path, on_progress: OnProgress = lambda progress: None) -> R:
    """Do a run unless it has ended before, keep its result, and return it.

    This is all that a launcher needs to call, wherever it does. Another process that is at the same run is waited for.
    A run that fails says so in its result, which is not kept: the next call tries again.
    """
    own, written = folder / run.name, float("-inf")

    def report(progress: Progress) -> None:
        nonlocal written
        if time.monotonic() - written >= _PROGRESS_SECONDS or progress.done >= run.steps:
            write_progress(own, progress)
            written = time.monotonic()
        on_progress(progress)

    with locked(own / LOCK, patience=float("inf")):
        done = result_of(run, folder)
        if done is not None:
            return done
        try:
            result = run.execute(own, report)
            write_result(own / RESULT, result)
        except FedMRError as e:
            return run.failed(str(e))
        except OSError as e:
            # A full disk or lost file system: whatever is in the folder is whole, since files are replaced atomically.
            reason = f"{e.strerror or e}{f': {e.filename}' if e.filename else ''}"
            return run.failed(f"{reason}. The same command resumes from what was reached.")
        except Exception as e:  # whatever it is, the other runs of the comparison have results to keep
            write_text(own / ERROR, traceback.format_exc())
            return run.failed(f"{type(e).__name__}: {e}. {own / ERROR} has the traceback.")
        run.clean_up(own)
    return result


def perform_there(run: Run[R], folder: Path, threads: int) -> R:
    """Do a run in a process that somebody else started, on this machine or another.

    ``threads`` is for that process and those it starts, whatever its environment says: the last bits depend on it.
    """
    os.environ[THREADS_VARIABLE] = str(threads)
    set_threads()
    return perform(run, folder)
