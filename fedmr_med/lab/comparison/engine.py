"""A whole comparison: do the runs that have no result yet, and show how far it is. A folder has one process at work."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from fedmr_med.errors import ConfigError
from fedmr_med.files import locked
from fedmr_med.lab.comparison.runs import R, Run, result_of
from fedmr_med.report.progress import Progress, show_progress

RUNS, LOCK = "runs", ".lock"


class Launcher(Protocol):
    """Executes runs: in this process, in others, on other machines."""

    def __call__(self, runs: Sequence[Run[R]], folder: Path, on_progress: Callable[[int, Progress], None]) -> list[R]:
        """Perform all runs, each under a name of its own, and return their results in order.

        ``folder`` holds one folder per run; ``on_progress`` is called with the number of a run and how far it is. See
        :func:`fedmr_med.lab.comparison.runs.perform`.

        Raises:
            FedMRError: runs cannot be executed at all.
        """


def complete(runs: Sequence[Run[R]], out: Path, launch: Launcher, *, unit: str) -> list[R]:
    """Do the runs that ``out`` has no result of yet, and return the results of all, in the order of ``runs``.

    Runs of the same name are done once; ``unit`` is what a step of a run is called.

    Raises:
        ConfigError: another process works in ``out``.
        ResultsError: a result in ``out`` is damaged, or of another version.
        FedMRError: runs cannot be executed.
    """
    with exclusive(out):
        known = {run.name: result for run in runs if (result := result_of(run, out / RUNS)) is not None}
        pending = list({run.name: run for run in runs if run.name not in known}.values())
        with show_progress(pending, unit) as on_progress:
            results = launch(pending, out / RUNS, on_progress) if pending else []
    known |= {run.name: result for run, result in zip(pending, results, strict=True)}
    return [known[run.name] for run in runs]


@contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Keep other processes out of a folder during the body; the lock goes with the process that holds it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(out / LOCK, patience=0))
        except TimeoutError as e:
            why = f"Another process is working in {out}; wait for it or choose another --out."
            raise ConfigError(why, code="run.in-use", key="--out") from e
        yield
