"""Doing many runs side by side, each in a worker process with one thread."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fedmr_med.bench.runs import Run, execute, failure
from fedmr_med.errors import FedMRError
from fedmr_med.process import set_threads
from fedmr_med.server.state import GlobalState

AfterRound = Callable[[int, int, float], None]
"""Called with the number of a run, its completed rounds, and the accuracy of its model."""

Results = list[dict[str, Any]]


def run_all(runs: Sequence[Run], folder: Path, workers: int, after_round: AfterRound) -> Results:
    """Do the runs and return their entries in ``results.json``, in the order of ``runs``.

    A run that fails says so in its entry, and the others go on.

    Args:
        runs: what to do.
        folder: holds one folder per run; a run that was stopped goes on from there.
        workers: processes to use; 0 does one run after the other in this process.
        after_round: told of the progress.

    Raises:
        FedMRError: a worker died.
    """
    return _in_workers(runs, folder, workers, after_round) if workers else _here(runs, folder, after_round)


def _here(runs: Sequence[Run], folder: Path, after_round: AfterRound) -> Results:
    set_threads(default=1)
    results = []
    for number, run in enumerate(runs):

        def told(state: GlobalState, number: int = number) -> None:
            after_round(number, *_progress(state))

        try:
            results.append(execute(run, folder, told))
        except FedMRError as e:
            results.append(failure(run, e))
    return results


def _in_workers(runs: Sequence[Run], folder: Path, workers: int, after_round: AfterRound) -> Results:
    results: dict[int, dict[str, Any]] = {}
    waiting = list(reversed(range(len(runs))))
    with _started(min(workers, len(runs))) as processes:
        busy: dict[Any, int] = {}

        def give(connection: Any) -> None:
            if waiting:
                busy[connection] = number = waiting.pop()
                connection.send((runs[number], folder))

        for connection in processes:
            give(connection)
        while busy:
            ready: list[Any] = wait(list(busy))
            for connection in ready:
                number = busy[connection]
                try:
                    kind, *content = connection.recv()
                except (EOFError, OSError) as e:
                    processes[connection].join()
                    raise FedMRError(
                        f"The worker for {runs[number].name} ended with exit code {processes[connection].exitcode}. "
                        "The same command goes on from what was reached; --workers 1 needs less memory."
                    ) from e
                if kind == "round":
                    after_round(number, *content)
                    continue
                results[number] = content[0] if kind == "done" else failure(runs[number], content[0])
                del busy[connection]
                give(connection)
    return [results[number] for number in range(len(runs))]


@contextmanager
def _started(workers: int) -> Iterator[dict[Any, BaseProcess]]:
    """Start worker processes, each at the end of a connection; end them on the way out, whatever they do."""
    context = multiprocessing.get_context("spawn")
    processes: dict[Any, BaseProcess] = {}
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            processes[ours] = process
        yield processes
    finally:
        # Every file a run writes is replaced atomically, so a worker can be ended at any moment.
        for connection, process in processes.items():
            process.kill()
            process.join()
            connection.close()


def _work(connection: Connection) -> None:
    """Do one run after the other, as the parent process sends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_threads(default=1)
    while True:
        run, folder = connection.recv()
        try:
            result = execute(run, folder, lambda state: connection.send(("round", *_progress(state))))
        except FedMRError as e:
            connection.send(("failed", str(e)))
        else:
            connection.send(("done", result))


def _end_with_parent() -> None:
    """End this process as soon as its parent has gone, even by kill -9: another one may go on with its runs."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _progress(state: GlobalState) -> tuple[int, float]:
    """Return the completed rounds and the accuracy of the model."""
    pooled = state.history.evaluations[-1].pooled
    return state.round, pooled.accuracy if pooled else 0.0
