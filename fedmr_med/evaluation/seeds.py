"""Figures over the seeds of a comparison."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedmr_med.evaluation.results import RunResult


@dataclass(frozen=True)
class Spread:
    """Mean of a figure over the seeds, and its sample standard deviation; None with one seed."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Summarise at least one value."""
        values = list(values)
        return cls(fmean(values), stdev(values) if len(values) > 1 else None)

    def percent(self) -> str:
        """Return the figure as a percentage with its spread."""
        return Spread(100 * self.mean, None if self.deviation is None else 100 * self.deviation).text(2)

    def text(self, decimals: int) -> str:
        """Return the figure with its spread."""
        spread = "" if self.deviation is None else f" ± {self.deviation:.{decimals}f}"
        return f"{self.mean:.{decimals}f}{spread}"


@dataclass(frozen=True)
class Row:
    """One method of a comparison, over its seeds.

    Attributes:
        label: the method, or the variant of one.
        seeds: how many runs the figures are over.
        best, last, last5: accuracy of the best round, the last, and the mean of the last five; None if no run was
            scored.
        balanced, balanced_last5: balanced accuracy of the best round, and the mean of the last five.
        head, head_balanced: accuracy and balanced accuracy of the last model with its closed-form head; None where no
            head was made.
        seconds: wall time of a round; of the one exchange of a run without rounds.
        megabytes: sent and received by all clients in it, 10^6 bytes.
    """

    label: str
    seeds: int
    best: Spread | None = None
    last: Spread | None = None
    last5: Spread | None = None
    balanced: Spread | None = None
    balanced_last5: Spread | None = None
    head: Spread | None = None
    head_balanced: Spread | None = None
    seconds: float = 0.0
    megabytes: float = 0.0
    errors: tuple[str, ...] = ()


def rows(runs: Sequence[RunResult]) -> list[Row]:
    """Summarise the entries of ``results.json`` by label, in the order in which the labels come."""
    by_label: dict[str, list[RunResult]] = {}
    for run in runs:
        by_label.setdefault(run.label or run.method, []).append(run)
    return [_row(label, of_label) for label, of_label in by_label.items()]


def _row(label: str, runs: list[RunResult]) -> Row:
    good = [run for run in runs if run.error is None]
    errors = tuple(f"seed {run.seed}: {run.error}" for run in runs if run.error is not None)
    if not good:
        return Row(label, 0, errors=errors)
    costs = [cost for run in good for cost in _costs(run)]
    return Row(
        label,
        len(good),
        best=_spread(good, lambda run: run.best_accuracy),
        last=_spread(good, lambda run: run.last_accuracy),
        last5=_spread(good, lambda run: run.last5_accuracy),
        balanced=_spread(good, lambda run: run.best_balanced_accuracy),
        balanced_last5=_spread(good, lambda run: run.last5_balanced_accuracy),
        head=_spread(good, lambda run: run.head_accuracy),
        head_balanced=_spread(good, lambda run: run.head_balanced_accuracy),
        seconds=fmean(seconds for seconds, _ in costs) if costs else 0.0,
        megabytes=fmean(size / 1e6 for _, size in costs) if costs else 0.0,
        errors=errors,
    )


def _costs(run: RunResult) -> list[tuple[float, int]]:
    """Return seconds and bytes of each round of a run, or of the one exchange of a run without rounds."""
    if run.rounds or run.head_seconds is None:
        return [(round_.seconds, round_.bytes_up + round_.bytes_down) for round_ in run.rounds]
    return [(run.head_seconds, (run.head_bytes_up or 0) + (run.head_bytes_down or 0))]


def _spread(runs: Sequence[RunResult], figure: Callable[[RunResult], float | None]) -> Spread | None:
    values = [value for value in map(figure, runs) if value is not None]
    return Spread.of(values) if values else None
