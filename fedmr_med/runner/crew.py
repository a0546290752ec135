"""Who works for the sites: this process alone, or worker processes side by side, to the same result bit for bit."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from fedmr_med.data.base import SiteData
from fedmr_med.errors import FedMRError
from fedmr_med.process import kept_memory
from fedmr_med.runner.broadcast import read_message, write_message
from fedmr_med.runner.desk import Desk, Work
from fedmr_med.runner.workers import worker_pool
from fedmr_med.wire.codec import Message, decode_task
from fedmr_med.wire.messages import TrainTask

BROADCAST = "broadcast"

T = TypeVar("T")
Question = Callable[[Desk, str, TrainTask], T]
"""A method of :class:`Desk`."""


class Crew(Protocol):
    """Answers questions of the server.

    Attributes:
        workers: how many sites work at the same time.
        waited: seconds in which this process had nothing to do but wait for workers.
    """

    workers: int
    waited: float

    def ask(self, question: Question[T], names: Iterable[str], task: Message) -> Iterator[tuple[str, T]]:
        """Ask the same of several sites, or of parts of the test set, and yield the answers in the order asked.

        Raises:
            FedMRError: a site failed, or a worker process ended.
        """


class Alone:
    """One desk in this process."""

    workers = 1
    waited = 0.0

    def __init__(self, desk: Desk):
        self._desk = desk

    def ask(self, question: Question[T], names: Iterable[str], task: Message) -> Iterator[tuple[str, T]]:
        """See :class:`Crew`."""
        received = decode_task(task)
        for name in names:
            yield name, question(self._desk, name, received)


class SideBySide:
    """A desk in each of several processes.

    The task goes out once, as a file that all workers map into memory. Answers are taken in the order in which
    they were asked for, and only a few more are asked for than there are workers: memory grows with the workers, not
    with the sites.
    """

    def __init__(self, pool: ProcessPoolExecutor, workers: int, folder: Path):
        self.workers = workers
        self.waited = 0.0
        self._pool = pool
        self._folder = folder
        self._asked = 0

    def ask(self, question: Question[T], names: Iterable[str], task: Message) -> Iterator[tuple[str, T]]:
        """See :class:`Crew`."""
        self._asked += 1
        path = self._folder / f"task-{self._asked}"
        write_message(path, task)
        window: deque[tuple[str, Future[T]]] = deque()
        try:
            for name in names:
                window.append((name, self._pool.submit(_answer, question, name, path)))
                if len(window) == 2 * self.workers:
                    yield self._first(window)
            while window:
                yield self._first(window)
        except BrokenProcessPool as e:
            raise FedMRError(
                "A worker process ended while a site was at work: it was killed, or memory ran out. The same command "
                "resumes from the last round; fewer --parallel-clients need less memory.",
                code="run.worker-ended",
            ) from e
        finally:
            path.unlink()

    def _first(self, window: deque[tuple[str, Future[T]]]) -> tuple[str, T]:
        name, future = window.popleft()
        started = time.perf_counter()
        answer = future.result()
        self.waited += time.perf_counter() - started
        return name, answer


@contextmanager
def crew(
    work: Work, workers: int, data: Mapping[str, SiteData], make_desk: Callable[..., Desk] = Desk
) -> Iterator[Crew]:
    """Put ``workers`` processes to work during the body; 1 is this process alone.

    Args:
        work: job and sites.
        workers: how many sites work at the same time.
        data: of all sites, for this process; workers open what they need.
        make_desk: makes a desk; it can be pickled.
    """
    if workers == 1:
        yield Alone(make_desk(work, data))
        return
    with worker_pool(workers, _sit_down, work, make_desk) as pool:
        yield SideBySide(pool, workers, work.folder / BROADCAST)


_desk: Desk | None = None
_kept_memory = ExitStack()  # open as long as a worker process lives
_task: tuple[Path, TrainTask] | None = None


def _sit_down(work: Work, make_desk: Callable[[Work], Desk]) -> None:
    """Make the desk of this worker process."""
    global _desk  # noqa: PLW0603 - a process pool hands nothing from its initialiser to its calls
    _desk = make_desk(work)
    _kept_memory.enter_context(kept_memory())


def _answer(question: Question[T], name: str, path: Path) -> T:
    """Answer in a worker process."""
    global _task  # noqa: PLW0603
    assert _desk is not None
    if _task is None or _task[0] != path:
        _task = None
        _task = path, decode_task(read_message(path))
    return question(_desk, name, _task[1])
