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
    console, started, done = Console(stderr=True), time.monotonic(), 0
    remaining = [run.steps for run in runs]

    def time_left(number: int, progress: Progress) -> str:
        """Estimate the time left in all, from the steps that were done since the start."""
        nonlocal done
        done += progress.new
        remaining[number] = runs[number].steps - progress.done
        seconds = round(sum(remaining) * (time.monotonic() - started) / max(done, 1))
        minutes, hours = seconds // 60, seconds // 3600
        return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {seconds % 60} s"

    if not console.is_terminal:
        printed = -math.inf

        def say(number: int, progress: Progress) -> None:
            nonlocal printed
            run, left = runs[number], time_left(number, progress)
            if progress.done < run.steps and time.monotonic() - printed < line_seconds:
                return
            printed = time.monotonic()
            note = f", {progress.note}" if progress.note else ""
            sys.stderr.write(f"{run.title}: {unit} {progress.done}/{run.steps}{note}; about {left} left in all\n")
            sys.stderr.flush()

        yield say
        return
    texts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Bars(*texts, TimeElapsedColumn(), console=console) as bars:
        total = sum(remaining)
        overall = bars.add_task(f"all {unit}s", total=total, note="")
        tasks: dict[int, TaskID] = {}

        def update(number: int, progress: Progress) -> None:
            steps = runs[number].steps
            if number not in tasks:
                tasks[number] = bars.add_task(runs[number].title, total=steps, note="")
            visible = keep or progress.done < steps
            bars.update(tasks[number], completed=progress.done, note=progress.note, visible=visible)
            left = f"about {time_left(number, progress)} left"
            bars.update(overall, completed=total - sum(remaining), note=left)

        yield update
