"""Runs on this machine: one after the other in this process, or side by side in worker processes."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fedmr_med.lab.comparison.files import Progress
from fedmr_med.lab.comparison.one_run import R, Run, perform
from fedmr_med.lab.comparison.schedule import follow
from fedmr_med.process import set_threads
from fedmr_med.runner.workers import worker_pool


@dataclass(frozen=True)
class Local:
    """The launcher for one machine.

    Attributes:
        workers: processes to use; 0 does one run after the other in this process.
        threads: of each of them, None for one per core; ``OMP_NUM_THREADS`` wins.
    """

    workers: int
    threads: int | None = 1

    def __call__(self, runs: Sequence[Run[R]], folder: Path, on_progress: Callable[[int, Progress], None]) -> list[R]:
        """Perform all runs and return their results in order."""
        if not self.workers:
            set_threads(default=self.threads)
            return [
                perform(run, folder, lambda progress, number=number: on_progress(number, progress))  # type: ignore[misc]
                for number, run in enumerate(runs)
            ]
        with ExitStack() as stack:
            slots = _Slots(stack, self.threads)
            return follow(
                runs,
                folder,
                on_progress,
                lambda chosen: [slots.submit(run, folder) for run in chosen],
                capacity=self.workers,
                died=lambda error: isinstance(error, BrokenProcessPool),
                advice="fewer --workers need less memory.",
            )


class _Slots:
    """Worker processes, each a pool of its own: the death of one breaks no other."""

    def __init__(self, stack: ExitStack, threads: int | None):
        self._stack = stack
        self._threads = threads
        self._started = 0
        self._idle: list[ProcessPoolExecutor] = []

    def submit(self, run: Run[R], folder: Path) -> Future[R]:
        """Let a process that is idle, or a new one, do a run."""
        pool = self._idle.pop() if self._idle else self._new()
        future = pool.submit(perform, run, folder)
        future.add_done_callback(lambda ended: None if _died(ended) else self._idle.append(pool))
        return future

    def _new(self) -> ProcessPoolExecutor:
        self._started += 1
        return self._stack.enter_context(worker_pool(1, threads=self._threads, first_slot=self._started - 1))


def _died(future: Future[R]) -> bool:
    return future.cancelled() or isinstance(future.exception(), BrokenProcessPool)
