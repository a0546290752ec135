"""What a comparison is made of: runs with a name, a folder and a result, which resume where they stopped."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel

from fedmr_med.errors import FedMRError
from fedmr_med.results import read_result, write_result

RESULT = "result.json"

R = TypeVar("R", bound=BaseModel)
R_co = TypeVar("R_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        done: its completed steps, those before a resumption included.
        new: the steps since the last report.
        note: what else to show, such as the accuracy.
    """

    done: int
    new: int
    note: str = ""


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

    This is all that a launcher needs to call, wherever it does. A run that fails says so in its result, which is
    not kept: the next call tries again.
    """
    done = result_of(run, folder)
    if done is not None:
        return done
    try:
        result = run.execute(folder / run.name, on_progress)
    except FedMRError as e:
        return run.failed(str(e))
    write_result(folder / run.name / RESULT, result)
    run.clean_up(folder / run.name)
    return result
