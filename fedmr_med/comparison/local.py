"""Runs on this machine: one after the other in this process, or side by side in worker processes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fedmr_med.comparison.run import Progress, R, Run, perform
from fedmr_med.errors import FedMRError
from fedmr_med.process import set_threads

# To mypy a connection is another class on every platform.
_Workers = dict[Any, BaseProcess]

_FAREWELL = 10.0  # seconds in which a worker that has nothing more to do should have ended


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
        """Perform all runs and return their results in order.

        Raises:
            FedMRError: a worker died.
        """
        if self.workers:
            return self._in_workers(runs, folder, on_progress)
        set_threads(default=self.threads)
        return [
            perform(run, folder, lambda progress, number=number: on_progress(number, progress))  # type: ignore[misc]
            for number, run in enumerate(runs)
        ]

    def _in_workers(
        self, runs: Sequence[Run[R]], folder: Path, on_progress: Callable[[int, Progress], None]
    ) -> list[R]:
        results: dict[int, R] = {}
        waiting = list(reversed(range(len(runs))))
        with _started(min(self.workers, len(runs)), self.threads) as workers:
            busy: dict[Any, int] = {}

            def assign(connection: Any) -> None:
                if waiting:
                    busy[connection] = number = waiting.pop()
                    connection.send((runs[number], folder))
                else:
                    connection.send(None)

            for connection in workers:
                assign(connection)
            while busy:
                ready: list[Any] = wait(list(busy))
                for connection in ready:
                    number = busy[connection]
                    try:
                        message = connection.recv()
                    except (EOFError, OSError) as e:
                        workers[connection].join()
                        raise FedMRError(
                            f"The worker for {runs[number].name} ended with exit code {workers[connection].exitcode}. "
                            "The same command resumes from what was reached; --workers 1 needs less memory."
                        ) from e
                    if isinstance(message, Progress):
                        on_progress(number, message)
                        continue
                    results[number] = message
                    del busy[connection]
                    assign(connection)
        return [results[number] for number in range(len(runs))]


@contextmanager
def _started(count: int, threads: int | None) -> Iterator[_Workers]:
    """Start worker processes, each at the end of a connection; on the way out no one of them is left."""
    context = multiprocessing.get_context("spawn")
    workers: _Workers = {}
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=_work, args=(theirs, threads), daemon=True)
            process.start()
            theirs.close()
            workers[ours] = process
        yield workers
        for process in workers.values():
            process.join(_FAREWELL)
    finally:
        # Every file a run writes is replaced atomically, so a worker can be ended at any moment.
        for connection, process in workers.items():
            process.kill()
            process.join()
            connection.close()


def _work(connection: Connection, threads: int | None) -> None:
    """Do one run after the other, as the parent process sends them, until it sends None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_threads(default=threads)
    while (task := connection.recv()) is not None:
        run, folder = task
        connection.send(perform(run, folder, connection.send))


def _end_with_parent() -> None:
    """End this process as soon as its parent has gone, even by kill -9: another one may resume its runs."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
