"""Following runs that are done by other processes: what is submitted, how far it is, and what died on the way."""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedmr_med.lab.comparison.runs import R, R_co, Run, read_progress
from fedmr_med.report.progress import Progress

ATTEMPTS = 2
"""A run whose process dies is done again, from where it was; one that dies so often fails."""

_SECONDS = 0.1  # between two looks


class Submitted(Protocol[R_co]):
    """A run on its way; a future of the standard library is one."""

    def done(self) -> bool:
        """Say whether it has ended, one way or the other."""

    def result(self) -> R_co:
        """Return its result, or raise what ended it."""


class ProgressFiles:
    """Tells what has changed in the progress of the runs of some names: their numbers, and how far they are."""

    def __init__(self, names: Sequence[str], folder: Path, on_progress: Callable[[int, Progress], None]):
        self._folders = [folder / name for name in names]
        self._on_progress = on_progress
        self._seen = [read_progress(own) for own in self._folders]

    def look(self, numbers: Sequence[int]) -> None:
        """Read the files of some runs."""
        for number in numbers:
            done, note = read_progress(self._folders[number])
            before, _ = self._seen[number]
            if (done, note) != self._seen[number]:
                self._seen[number] = done, note
                self._on_progress(number, Progress(done, max(done - before, 0), note))

    def ended(self, number: int, steps: int) -> None:
        """Tell that a run is over, even if it stopped before its last step."""
        done, note = self._seen[number]
        if done < steps:
            self._seen[number] = steps, note
            self._on_progress(number, Progress(steps, 0, note))


def follow(
    runs: Sequence[Run[R]],
    folder: Path,
    on_progress: Callable[[int, Progress], None],
    submit: Callable[[Sequence[Run[R]]], Sequence[Submitted[R]]],
    capacity: int,
    died: Callable[[Exception], bool],
    advice: str,
    cancel: Callable[[Any], None] = lambda job: None,
) -> list[R]:
    """Submit runs, report their progress from their files, and return their results in order.

    Args:
        runs, folder, on_progress: as for a :class:`fedmr_med.lab.comparison.engine.Launcher`.
        submit: sends runs on their way, to :func:`fedmr_med.lab.comparison.runs.perform`.
        capacity: runs that are on their way at the same time.
        died: whether what ``result()`` raises says that the process of a run has ended, instead of what the run did.
        advice: a sentence on what helps against that.
        cancel: takes back what is underway when this process is stopped.
    """
    files = ProgressFiles([run.name for run in runs], folder, on_progress)
    waiting = deque(range(len(runs)))
    attempts: Counter[int] = Counter()
    underway: dict[int, Submitted[Any]] = {}
    results: dict[int, R] = {}
    try:
        while waiting or underway:
            batch = [waiting.popleft() for _ in range(min(len(waiting), capacity - len(underway)))]
            if batch:
                attempts.update(batch)
                underway |= zip(batch, submit([runs[number] for number in batch]), strict=True)
            time.sleep(_SECONDS)
            ended = [number for number, job in underway.items() if job.done()]
            files.look(list(underway))
            for number in ended:
                try:
                    results[number] = underway.pop(number).result()
                except Exception as e:
                    if not died(e):
                        raise
                    if attempts[number] < ATTEMPTS:
                        waiting.append(number)
                        continue
                    results[number] = runs[number].failed(
                        f"The process of {runs[number].title} ended {ATTEMPTS} times: killed, or out of memory. The "
                        f"same command resumes from what was reached; {advice}"
                    )
                files.ended(number, runs[number].steps)
    except BaseException:
        for job in underway.values():
            cancel(job)
        raise
    return [results[number] for number in range(len(runs))]
