"""Worker processes that never outlive what they work for: the body of a ``with``, or the process that started them."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from fedmr_med.process import set_threads


@contextmanager
def worker_pool(
    count: int, begin: Callable[..., None] | None = None, *arguments: Any, threads: int | None = 1, first_slot: int = 0
) -> Iterator[ProcessPoolExecutor]:
    """Start worker processes during the body.

    They are new processes, not forked ones, which would inherit locks of threads that they do not have. If the
    body raises, or if this process ends, even by kill -9, they end at once: whatever they write, they write
    atomically.

    Args:
        count: how many; each starts when it is first needed.
        begin: called first in each of them, with ``arguments``.
        threads: of each, None for one per core; ``OMP_NUM_THREADS`` wins.
        first_slot: number of the first of them, by which they take GPUs in turn.
    """
    context = multiprocessing.get_context("spawn")
    # Nobody else holds the other end, so it closes with this process or with the body.
    parent, held = context.Pipe(duplex=False)
    slots = context.SimpleQueue()
    for slot in range(first_slot, first_slot + count):
        slots.put(slot)
    pool = ProcessPoolExecutor(
        count, mp_context=context, initializer=_begin, initargs=(parent, slots, threads, begin, arguments)
    )
    try:
        yield pool
        pool.shutdown()
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)
        parent.close()


def _begin(
    parent: Connection, slots: Any, threads: int | None, begin: Callable[..., None] | None, arguments: tuple[Any, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    set_threads(default=threads)
    _take_device(slots.get())
    if begin is not None:
        begin(*arguments)


def _end_with(parent: Connection) -> None:
    """End this process as soon as nobody holds the other end of a connection."""
    try:
        parent.recv()
    except (EOFError, OSError):
        os._exit(1)


def _take_device(slot: int) -> None:
    """Give each worker a GPU of its own, in turn, where there are any."""
    import torch

    devices = torch.cuda.device_count()
    if devices:
        torch.cuda.set_device(slot % devices)
