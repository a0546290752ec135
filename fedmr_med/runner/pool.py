"""Who works for the sites: this process alone, or worker processes side by side, to the same result bit for bit."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from fedmr_med.data.base import SiteData
from fedmr_med.errors import FedMRError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.process import kept_memory
from fedmr_med.runner.broadcast import read_message, write_message
from fedmr_med.runner.local_sites import LocalSites, SiteAnswer, Work
from fedmr_med.runner.workers import worker_pool
from fedmr_med.wire.codec import MODEL, Message, decode_task
from fedmr_med.wire.messages import TrainTask

BROADCAST = "broadcast"

T = TypeVar("T")


class Received:
    """A message as the sites of this process have it: decoded once for all of them."""

    def __init__(self, message: Message):
        self.message = message

    @cached_property
    def task(self) -> TrainTask:
        """The message as a task."""
        return decode_task(self.message)


Question = Callable[[LocalSites, str, Received], T]
"""What is asked of the local sites for one of them, or for a part of the test set. It can be pickled."""


def ask(sites: LocalSites, site: str, received: Received, *, kind: str) -> SiteAnswer:
    """Bring a message to a site, and return what came of it."""
    task = received.task if MODEL in received.message.parts else None  # a step of a secure sum is none
    return sites.answer(kind, site, received.message, task)


def score(sites: LocalSites, rows: str, received: Received) -> Scores:
    """Score a model on a part of the server's test set."""
    return sites.score(rows, received.task)


class OneProcess:
    """All sites in this process, one after the other."""

    workers = 1
    waited = 0.0

    def __init__(self, sites: LocalSites):
        self._sites = sites

    def each(self, question: Question[T], names: Iterable[str], message: Message) -> Iterator[tuple[str, T]]:
        """Ask the same of several, and yield the answers in the order asked."""
        received = Received(message)
        for name in names:
            yield name, question(self._sites, name, received)


class ProcessPool:
    """Sites in several processes, side by side; each process has a network of its own.

    The task goes out once, as a file that all workers map into memory. Answers are taken in the order in which
    they were asked for, and only a few more are asked for than there are workers: memory grows with the workers, not
    with the sites.
    """

    def __init__(self, pool: ProcessPoolExecutor, workers: int, folder: Path):
        self.workers = workers
        self.waited = 0.0  # seconds in which this process had nothing to do but wait for workers
        self._pool = pool
        self._folder = folder
        self._asked = 0

    def each(self, question: Question[T], names: Iterable[str], message: Message) -> Iterator[tuple[str, T]]:
        """Ask the same of several, and yield the answers in the order asked; raise FedMRError if a worker ends."""
        self._asked += 1
        path = self._folder / f"task-{self._asked}"
        write_message(path, message)
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


Pool = OneProcess | ProcessPool


@contextmanager
def open_pool(
    work: Work, workers: int, data: Mapping[str, SiteData], make_sites: Callable[..., LocalSites] = LocalSites
) -> Iterator[Pool]:
    """Put ``workers`` processes to work during the body; 1 is this process alone, with the data of all sites.

    ``make_sites`` makes what answers for the sites; it can be pickled.
    """
    if workers == 1:
        yield OneProcess(make_sites(work, data))
        return
    with worker_pool(workers, _begin_work, work, make_sites) as pool:
        yield ProcessPool(pool, workers, work.folder / BROADCAST)


# What a worker process holds: a process pool hands nothing from its initialiser to its calls.
_sites: LocalSites
_received: tuple[Path, Received] | None = None
_kept_memory = ExitStack()  # open as long as a worker process lives


def _begin_work(work: Work, make_sites: Callable[[Work], LocalSites]) -> None:
    """Make what answers in this worker process."""
    global _sites  # noqa: PLW0603
    _sites = make_sites(work)
    _kept_memory.enter_context(kept_memory())


def _answer(question: Question[T], name: str, path: Path) -> T:
    """Answer in a worker process."""
    global _received  # noqa: PLW0603
    if _received is None or _received[0] != path:
        _received = None  # first, so that memory holds one message at a time
        _received = path, Received(read_message(path))
    return question(_sites, name, _received[1])
