"""The measuring core: interleaved repetitions, and figures with their spread.

What is compared runs in turn, A B C, B C A, ..., so that a busy machine slows all of it alike. A ratio is taken
within each turn; its median and quartiles over the turns are the figure.
"""

import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

CPU, WALL = "CPU time", "wall time"


def children() -> float:
    """Return the CPU time of the processes that this one started, and that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class Figure:
    """One measured figure: median and quartiles of some repetitions.

    Attributes:
        name: field of the result that it belongs to.
        subject, case: what was measured, at which sizes.
        compared: what the value means.
    """

    name: str
    subject: str
    case: str
    compared: str
    value: float
    low: float
    high: float
    repetitions: int

    @classmethod
    def of(cls, name: str, subject: str, case: str, compared: str, values: Sequence[float]) -> "Figure":
        """Return the figure of some measured values."""
        low, middle, high = quartiles(values)
        return cls(name, subject, case, compared, middle, low, high, len(values))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, rounded to four digits."""
        return {key: round_to(value) if isinstance(value, float) else value for key, value in asdict(self).items()}


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    repetitions: int,
    *,
    clock: Callable[[], Any] = time.process_time,
    warm_up: int = 1,
) -> dict[str, list[Any]]:
    """Return the seconds of each candidate in each repetition, of which each runs all candidates once.

    Args:
        candidates: what to run, by name.
        repetitions: turns that count, after those to warm up.
        clock: CPU time of this process, which neighbours hardly change, right for work in one thread; wall time where
            waiting is part of the matter; several clocks as an array.
        warm_up: turns before.
    """
    names = list(candidates)
    seconds: dict[str, list[Any]] = {name: [] for name in names}
    for turn in range(-warm_up, repetitions):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            started = clock()
            candidates[name]()
            elapsed = clock() - started
            if turn >= 0:
                seconds[name].append(elapsed)
    return seconds


def ratios(seconds: Mapping[str, Sequence[Any]], name: str, base: str) -> list[Any]:
    """Return the ratio of two candidates in each repetition."""
    return [a / b for a, b in zip(seconds[name], seconds[base], strict=True)]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return first quartile, median and third quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def round_to(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")
