"""What a person sees on standard error while a comparison runs: a bar per run and the time left."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fedmr_med.lab.comparison.runs import Progress, Run

# Without a terminal there is no bar but a line now and then.
_LINE_SECONDS = 30.0


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
