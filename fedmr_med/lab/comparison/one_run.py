"""What a comparison is made of: runs with a name, a folder and a result, which resume where they stopped."""

import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel

from fedmr_med.errors import FedMRError
from fedmr_med.evaluation.results import read_result, write_result
from fedmr_med.files import locked, write_text
from fedmr_med.lab.comparison.files import Progress, write_progress
from fedmr_med.process import THREADS_VARIABLE, set_threads

RESULT, ERROR, LOCK = "result.json", "error.txt", ".lock"
_PROGRESS_SECONDS = 0.2  # between two writings of the progress, which some runs report a hundred times a second

R = TypeVar("R", bound=BaseModel)
R_co = TypeVar("R_co", bound=BaseModel, covariant=True)


OnProgress = Callable[[Progress], None]


class Run(Protocol[R_co]):
    """One run of a comparison. It can be pickled: another process, or another machine, may execute it."""

    @property
    def name(self) -> str:
        """Name of its folder. It holds a digest of all settings that the result depends on."""

    @property
    def title(self) -> str:
        """What progress and messages call it."""

    @property
    def steps(self) -> int:
        """Steps of the whole run, such as rounds: the measure of its progress."""

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
    """Return the result of a run that has ended before; None if it has not.

    Args:
        run: the run.
        folder: holds one folder per run.

    Raises:
        ResultsError: the result is damaged, or of another version.
    """
    path = folder / run.name / RESULT
    return read_result(path, run.result_type) if path.exists() else None


def perform(run: Run[R], folder: Path, on_progress: OnProgress = lambda progress: None) -> R:
    """Do a run unless it has ended before, keep its result, and return it.

    This is all that a launcher needs to call, wherever it does. How far the run is goes into a file in its folder,
    too: see :mod:`fedmr_med.lab.comparison.files`. Another process that is at the same run is waited for. A run that
    fails says so in its result, which is not kept: the next call tries again.
    """
    own = folder / run.name
    with locked(own / LOCK, patience=float("inf")):
        done = result_of(run, folder)
        if done is not None:
            return done
        try:
            result = run.execute(own, _Reporter(run, own, on_progress))
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

    Args:
        run: the run.
        folder: holds one folder per run.
        threads: of that process and of those it starts, whatever its environment says: the last bits of a result
            depend on it.
    """
    os.environ[THREADS_VARIABLE] = str(threads)
    set_threads()
    return perform(run, folder)


class _Reporter:
    """Writes progress to the run's file and passes it on."""

    def __init__(self, run: Run[R], folder: Path, on_progress: OnProgress):
        self._run, self._folder, self._on_progress = run, folder, on_progress
        self._written = float("-inf")

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._written >= _PROGRESS_SECONDS or progress.done >= self._run.steps:
            write_progress(self._folder, progress)
            self._written = now
        self._on_progress(progress)
