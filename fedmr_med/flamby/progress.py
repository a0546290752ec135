"""What a person sees while a comparison runs: how far it is, and the time left."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# Without a terminal there is no bar but a line now and then.
_LINE_SECONDS = 30.0

Advance = Callable[[str, int], None]
"""Called with the name of a run and the local steps it did since the last call."""


@contextmanager
def shown(total: int) -> Iterator[Advance]:
    """Show the progress of ``total`` local steps on standard error; yield what is to be told of them."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("training", total=total)
        yield lambda name, steps: bar.update(task, description=name, advance=steps)


class _Lines:
    """Writes a line now and then."""

    def __init__(self, console: Console, total: int):
        self.console = console
        self.total = total
        self.done = 0
        self.started = self.told = time.monotonic()

    def __call__(self, name: str, steps: int) -> None:
        self.done += steps
        now = time.monotonic()
        if now - self.told < _LINE_SECONDS:
            return
        self.told = now
        left = round((self.total - self.done) * (now - self.started) / self.done)
        text = f"{name}: {self.done} of {self.total} local steps, about {left // 60} min {left % 60} s left"
        self.console.print(text, highlight=False, soft_wrap=True)
