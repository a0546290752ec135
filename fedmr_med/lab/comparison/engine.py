"""A whole comparison: do the runs that have no result yet, one process at a time in a folder, and show how far it is.

What a person sees, on standard error, is a bar for each run and the time left.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fedmr_med.errors import ConfigError
from fedmr_med.files import locked
from fedmr_med.lab.comparison.runs import Progress, R, Run, result_of

RUNS, LOCK = "runs", ".lock"
_LINE_SECONDS = 30.0  # without a terminal there is no bar but a line now and then


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
            raise ConfigError(
                f"Another process is working in {out}; wait for it or choose another --out.",
                code="run.in-use",
                key="--out",
            ) from e
        yield


class _TimeLeft:
    """Estimates the time left from the steps that were done since the start."""

    def __init__(self, runs: Sequence[Run[Any]]):
        self.remaining = [run.steps for run in runs]
        self.started = time.monotonic()
        self.done = 0

    def __call__(self, number: int, progress: Progress, steps: int) -> str:
        """Return the time left in all, given how far a run is."""
        self.done += progress.new
        self.remaining[number] = steps - progress.done
        seconds = round(sum(self.remaining) * (time.monotonic() - self.started) / max(self.done, 1))
        minutes, hours = seconds // 60, seconds // 3600
        return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {seconds % 60} s"


@contextmanager
def show_progress(runs: Sequence[Run[Any]], unit: str) -> Iterator[Callable[[int, Progress], None]]:
    """Show the progress of runs on standard error; yield what is to be called with a run's number and progress."""
    console = Console(stderr=True)
    time_left = _TimeLeft(runs)
    if not console.is_terminal:
        yield _Lines(runs, unit, time_left)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console) as bars:
        total = sum(run.steps for run in runs)
        overall = bars.add_task(f"all {unit}s", total=total, note="")
        tasks: dict[int, TaskID] = {}

        def update(number: int, progress: Progress) -> None:
            steps = runs[number].steps
            if number not in tasks:
                tasks[number] = bars.add_task(runs[number].title, total=steps, note="")
            visible = progress.done < steps
            bars.update(tasks[number], completed=progress.done, note=progress.note, visible=visible)
            note = f"about {time_left(number, progress, steps)} left"
            bars.update(overall, completed=total - sum(time_left.remaining), note=note)

        yield update


class _Lines:
    """Prints a line when a run ends, and every half minute."""

    def __init__(self, runs: Sequence[Run[Any]], unit: str, time_left: _TimeLeft):
        self.runs, self.unit, self.time_left = runs, unit, time_left
        self.printed = -math.inf

    def __call__(self, number: int, progress: Progress) -> None:
        run = self.runs[number]
        time_left = self.time_left(number, progress, run.steps)
        if progress.done < run.steps and time.monotonic() - self.printed < _LINE_SECONDS:
            return
        self.printed = time.monotonic()
        note = f", {progress.note}" if progress.note else ""
        line = f"{run.title}: {self.unit} {progress.done}/{run.steps}{note}; about {time_left} left in all\n"
        sys.stderr.write(line)
        sys.stderr.flush()
