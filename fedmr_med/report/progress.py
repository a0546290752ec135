"""How far several long runs are, on standard error: a bar for each on a terminal, a line now and then elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


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


class Titled(Protocol):
    """A run that is shown."""

    @property
    def title(self) -> str:
        """What progress and messages call it."""

    @property
    def steps(self) -> int:
        """Steps of the whole run, such as rounds: the measure of its progress."""


class _TimeLeft:
    """Estimates the time left from the steps that were done since the start."""

    def __init__(self, runs: Sequence[Titled]):
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
def show_progress(
    runs: Sequence[Titled], unit: str, *, keep: bool = False, line_seconds: float = 30.0
) -> Iterator[Callable[[int, Progress], None]]:
    """Show the progress of runs; yield what is to be called with a run's number and progress.

    Args:
        unit: what a step of a run is called.
        keep: whether the bar of a run that is done stays.
        line_seconds: time between two lines where there is no terminal.
    """
    console = Console(stderr=True)
    time_left = _TimeLeft(runs)
    if not console.is_terminal:
        yield _Lines(runs, unit, time_left, line_seconds)
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
            visible = keep or progress.done < steps
            bars.update(tasks[number], completed=progress.done, note=progress.note, visible=visible)
            note = f"about {time_left(number, progress, steps)} left"
            bars.update(overall, completed=total - sum(time_left.remaining), note=note)

        yield update


class _Lines:
    """Prints a line when a run ends, and now and then."""

    def __init__(self, runs: Sequence[Titled], unit: str, time_left: _TimeLeft, seconds: float):
        self.runs, self.unit, self.time_left, self.seconds = runs, unit, time_left, seconds
        self.printed = -math.inf

    def __call__(self, number: int, progress: Progress) -> None:
        run = self.runs[number]
        time_left = self.time_left(number, progress, run.steps)
        if progress.done < run.steps and time.monotonic() - self.printed < self.seconds:
            return
        self.printed = time.monotonic()
        note = f", {progress.note}" if progress.note else ""
        line = f"{run.title}: {self.unit} {progress.done}/{run.steps}{note}; about {time_left} left in all\n"
        sys.stderr.write(line)
        sys.stderr.flush()
