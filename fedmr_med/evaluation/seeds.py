"""Figures over the seeds of a comparison."""

from collections.abc import Iterable, Sequence
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
        runs: those that did not fail.
        errors: why the others did.
    """

    label: str
    runs: tuple[RunResult, ...]
    errors: tuple[str, ...] = ()

    def over_seeds(self, figure: str) -> Spread | None:
        """Return a figure of :class:`RunResult`, by its name; None if no run has it."""
        values = [value for run in self.runs if (value := getattr(run, figure)) is not None]
        return Spread.of(values) if values else None

    @property
    def seconds(self) -> float:
        """Wall time of a round; of the one exchange of a run without rounds."""
        return self._cost(0)

    @property
    def megabytes(self) -> float:
        """Sent and received by all clients in it, 10^6 bytes."""
        return self._cost(1) / 1e6

    def _cost(self, which: int) -> float:
        costs = [cost[which] for run in self.runs for cost in _costs(run)]
        return fmean(costs) if costs else 0.0


def rows(runs: Sequence[RunResult]) -> list[Row]:
    """Group the entries of ``results.json`` by label, in the order in which the labels come."""
    by_label: dict[str, list[RunResult]] = {}
    for run in runs:
        by_label.setdefault(run.label or run.method, []).append(run)
    return [
        Row(
            label,
            tuple(run for run in found if run.error is None),
            tuple(f"seed {run.seed}: {run.error}" for run in found if run.error is not None),
        )
        for label, found in by_label.items()
    ]


def _costs(run: RunResult) -> list[tuple[float, int]]:
    """Return seconds and bytes of each round of a run, or of the one exchange of a run without rounds."""
    if run.rounds or run.head_seconds is None:
        return [(round_.seconds, round_.bytes_up + round_.bytes_down) for round_ in run.rounds]
    return [(run.head_seconds, (run.head_bytes_up or 0) + (run.head_bytes_down or 0))]
