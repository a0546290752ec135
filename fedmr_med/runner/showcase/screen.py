"""What a person sees while the demo runs: a bar and a score for each way of training, and the time left."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from fedmr_med.report.lines import duration
from fedmr_med.runner.showcase.plan import CLASSES, HOSPITALS, LABELS, Run
from fedmr_med.runner.showcase.work import Progress

_LINE_SECONDS = 10.0


class Board:
    """How far all runs are, in the order of their numbers."""

    def __init__(self, runs: Sequence[Run], clock: Callable[[], float] = time.monotonic):
        self._runs, self._clock = runs, clock
        self._progress = {number: Progress(number, 0, None) for number in range(len(runs))}
        self._started: float | None = None  # with the first round: workers take some seconds to start

    def update(self, progress: Progress) -> None:
        """Take a run's progress in."""
        if self._started is None:
            self._started = self._clock()
        self._progress[progress.run] = progress

    def seconds_left(self) -> float | None:
        """Return about how long it still takes, if a round costs what it has sites; None before anything is done."""
        done = sum(self._progress[n].rounds * len(run.sites) for n, run in enumerate(self._runs))
        total = sum(run.job.federation.rounds * len(run.sites) for run in self._runs)
        if not done or self._started is None:
            return None
        return (total - done) * (self._clock() - self._started) / done

    def lines(self) -> list[tuple[str, int, int, float | None]]:
        """Return for each way of training its name, rounds done and asked for, and its mean score so far."""
        return [self._line(label) for label in LABELS]

    def _line(self, label: str) -> tuple[str, int, int, float | None]:
        numbers = [number for number, run in enumerate(self._runs) if run.label == label]
        states = [self._progress[number] for number in numbers]
        scores = [state.score for state in states if state.score is not None]
        asked = sum(self._runs[number].job.federation.rounds for number in numbers)
        return label, sum(state.rounds for state in states), asked, fmean(scores) if scores else None

    def left(self) -> str:
        """Return the time left in words."""
        seconds = self.seconds_left()
        return "starting" if seconds is None else f"about {duration(seconds)} left" if seconds >= 1 else "done"

    def table(self) -> Table:
        """Return all of it for the terminal."""
        table = Table(title=f"{len(HOSPITALS)} hospitals, {len(CLASSES)} classes: {self.left()}")
        table.add_column("training", no_wrap=True)
        table.add_column("rounds", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
        table.add_column("balanced accuracy", justify="right", no_wrap=True)
        for label, done, asked, score in self.lines():
            bar = ProgressBar(total=asked, completed=done, width=24)
            table.add_row(label, bar, f"{done}/{asked}", "" if score is None else f"{score:.2f}")
        return table


@contextmanager
def show_board(runs: Sequence[Run], *, quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Show runs during the body; yield what is to be called with the progress of one.

    A terminal has a table that stays in its place; elsewhere there is a line now and then.
    """
    board, console = Board(runs), Console(stderr=True)
    if quiet:
        yield board.update
    elif console.is_terminal:
        with Live(board.table(), console=console, refresh_per_second=4) as live:

            def update(progress: Progress) -> None:
                board.update(progress)
                live.update(board.table())

            yield update
    else:
        yield _Lines(board)


class _Lines:
    def __init__(self, board: Board):
        self._board, self._printed = board, time.monotonic()

    def __call__(self, progress: Progress) -> None:
        self._board.update(progress)
        if time.monotonic() - self._printed < _LINE_SECONDS:
            return
        self._printed = time.monotonic()
        parts = [
            f"{label} {done}/{asked}" + ("" if score is None else f" ({score:.2f})")
            for label, done, asked, score in self._board.lines()
        ]
        sys.stderr.write(f"{' · '.join(parts)}; {self._board.left()}\n")
        sys.stderr.flush()
