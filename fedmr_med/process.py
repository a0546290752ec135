"""Threads and memory of a process: the only place where either is decided."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from fedmr_med.errors import ConfigError

# Parameters of mallopt(3), from malloc.h, and their defaults.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_DEFAULT_TRIM_THRESHOLD, _DEFAULT_MMAP_MAX = 128 * 1024, 65536

_keeping: ContextVar[bool] = ContextVar("keeping", default=False)

THREADS_VARIABLE = "OMP_NUM_THREADS"


def set_threads(default: int | None = None) -> int:
    """Set the number of compute threads of this process and return it.

    ``OMP_NUM_THREADS`` wins, then ``default``, then the number of cores this process may use. To be called
    before the first tensor operation: OpenMP threads that spin beside other busy processes cost ten times
    and more.
    """
    import torch

    threads = asked_threads() or default or available_cores()
    torch.set_num_threads(threads)
    return threads


def asked_threads() -> int | None:
    """Return the threads per process that ``OMP_NUM_THREADS`` asks for; None if it is not set.

    Raises:
        ConfigError: it is no positive number.
    """
    text = os.environ.get(THREADS_VARIABLE, "")
    if not text:
        return None
    first = text.split(",")[0].strip()  # OpenMP takes a list, one number for each level of nesting
    if not first.isdigit() or not int(first):
        raise ConfigError(
            f"The environment variable {THREADS_VARIABLE} must be a positive number, not {text!r}.",
            code="config.value",
            key=THREADS_VARIABLE,
        )
    return int(first)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Let glibc keep freed memory during the body, and return it to the kernel afterwards; elsewhere, do nothing.

    Activations are freed and allocated anew in every training step. Without this, faulting their pages in again
    costs a quarter of the time of an EfficientNet-b0 step at 48 pixels, and more at larger ones. Within itself it
    does nothing: the outermost body counts.
    """
    outermost = not _keeping.get()
    token = _keeping.set(True)
    if outermost:
        _glibc("mallopt", _M_MMAP_MAX, 0)
        _glibc("mallopt", _M_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        _keeping.reset(token)
        if outermost:
            _glibc("mallopt", _M_MMAP_MAX, _DEFAULT_MMAP_MAX)
            _glibc("mallopt", _M_TRIM_THRESHOLD, _DEFAULT_TRIM_THRESHOLD)
            give_back_memory()


def give_back_memory() -> None:
    """Return freed memory to the kernel, where it is glibc that holds it."""
    _glibc("malloc_trim", 0)


def _glibc(function: str, *arguments: int) -> None:
    """Call a function of glibc's allocator where there is one."""
    if sys.platform.startswith("linux"):
        entry = getattr(_loaded(), function, None)
        if entry is not None:
            entry(*arguments)


@lru_cache(maxsize=1)
def _loaded() -> ctypes.CDLL:
    """Return what is loaded into this process."""
    return ctypes.CDLL(None)


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
