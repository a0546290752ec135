"""A figure over the seeds of a comparison."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev


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
