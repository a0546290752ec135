"""Statistics over the seeds of a comparison."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any


@dataclass(frozen=True)
class Spread:
    """Mean of a figure over the seeds, and its sample standard deviation; None with one seed."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Summarise at least one value."""
        values = list(values)
        return cls(fmean(values), stdev(values) if len(values) > 1 else None)

    def percent(self) -> str:
        """Return the figure as a percentage with its spread."""
        spread = "" if self.deviation is None else f" ± {100 * self.deviation:.2f}"
        return f"{100 * self.mean:.2f}{spread}"


@dataclass(frozen=True)
class Row:
    """One method of a comparison, over its seeds.

    Attributes:
        label: the method, or the variant of one.
        seeds: how many runs the figures are over.
        best, last, last5: accuracy of the best round, the last, and the mean of the last five.
        balanced: balanced accuracy of the best round.
        seconds: wall time of a round.
        megabytes: sent and received by all clients in a round, 10^6 bytes.
        errors: why runs failed.
    """

    label: str
    seeds: int
    best: Spread | None
    last: Spread | None
    last5: Spread | None
    balanced: Spread | None
    seconds: float
    megabytes: float
    errors: tuple[str, ...] = ()


def rows(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """Summarise the entries of ``results.json`` by label, in the order in which the labels come."""
    return [_row(label, [run for run in runs if run["label"] == label]) for label in labels(runs)]


def labels(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the labels of the runs, each once."""
    return list(dict.fromkeys(run["label"] for run in runs))


def _row(label: str, runs: list[dict[str, Any]]) -> Row:
    good = [run for run in runs if "error" not in run]
    errors = tuple(f"seed {run['seed']}: {run['error']}" for run in runs if "error" in run)
    if not good:
        return Row(label, 0, None, None, None, None, 0.0, 0.0, errors)
    rounds = [round_ for run in good for round_ in run["rounds"]]
    return Row(
        label,
        len(good),
        best=Spread.of(run["best_accuracy"] for run in good),
        last=Spread.of(run["last_accuracy"] for run in good),
        last5=Spread.of(run["last5_accuracy"] for run in good),
        balanced=Spread.of(run["best_balanced_accuracy"] for run in good),
        seconds=fmean(round_["seconds"] for round_ in rounds),
        megabytes=fmean((round_["bytes_up"] + round_["bytes_down"]) / 1e6 for round_ in rounds),
        errors=errors,
    )
