"""What a person sees while a comparison runs: a bar per run and the time left."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fedmr_med.bench.pool import AfterRound
from fedmr_med.bench.runs import Run

# Without a terminal there is no bar but a line now and then.
_LINE_SECONDS = 30.0


class _TimeLeft:
    """Estimates the time left from the rounds that were done since the start; called after each of them."""

    def __init__(self, runs: Sequence[Run]):
        self.remaining = {number: run.job.federation.rounds for number, run in enumerate(runs)}
        self.rounds = {number: run.job.federation.rounds for number, run in enumerate(runs)}
        self.started = time.monotonic()
        self.count = 0

    def __call__(self, number: int, round_number: int) -> str:
        """Return the time left, given that a run has completed a round."""
        self.count += 1
        self.remaining[number] = self.rounds[number] - round_number
        seconds = round(sum(self.remaining.values()) * (time.monotonic() - self.started) / self.count)
        minutes, hours = seconds // 60, seconds // 3600
        return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {seconds % 60} s"


@contextmanager
def shown(runs: Sequence[Run]) -> Iterator[AfterRound]:
    """Show the progress of runs on standard error; yield what is to be told of each round."""
    console = Console(stderr=True)
    left = _TimeLeft(runs)
    if not console.is_terminal:
        yield _Lines(runs, left)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        total = sum(left.rounds.values())
        overall = progress.add_task("all rounds", total=total, note="")
        bars: dict[int, TaskID] = {}

        def after_round(number: int, round_number: int, accuracy: float) -> None:
            name, rounds = f"{runs[number].label}, seed {runs[number].job.seed}", left.rounds[number]
            if number not in bars:
                bars[number] = progress.add_task(name, total=rounds, note="")
            note = f"accuracy {accuracy:.3f}"
            progress.update(bars[number], completed=round_number, note=note, visible=round_number < rounds)
            note = f"about {left(number, round_number)} left"
            progress.update(overall, completed=total - sum(left.remaining.values()), note=note)

        yield after_round


class _Lines:
    """Prints a line when a run ends, and every half minute."""

    def __init__(self, runs: Sequence[Run], left: _TimeLeft):
        self.runs, self.left = runs, left
        self.printed = 0.0

    def __call__(self, number: int, round_number: int, accuracy: float) -> None:
        run, rounds = self.runs[number], self.left.rounds[number]
        left = self.left(number, round_number)
        if round_number < rounds and time.monotonic() - self.printed < _LINE_SECONDS:
            return
        self.printed = time.monotonic()
        line = f"{run.label}, seed {run.job.seed}: round {round_number}/{rounds}, accuracy {accuracy:.3f}"
        sys.stderr.write(f"{line}; about {left} left in all\n")
        sys.stderr.flush()
