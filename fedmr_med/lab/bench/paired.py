"""Methods of a comparison against one of them, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedmr_med.evaluation.results import RunResult


@dataclass(frozen=True)
class Gap:
    """Mean of paired differences, and half the width of its 95 % interval by Student's t; None with one pair."""

    mean: float
    half_width: float | None

    @classmethod
    def of(cls, pairs: Sequence[tuple[float | None, float | None]]) -> "Gap | None":
        """Return the gap of (method, reference) pairs; None where one of them is missing."""
        gaps = [own - other for own, other in pairs if own is not None and other is not None]
        return cls(fmean(gaps), half_width(gaps)) if gaps and len(gaps) == len(pairs) else None


@dataclass(frozen=True)
class Difference:
    """A method minus the reference in balanced accuracy, over the seeds that both have.

    Attributes:
        last5: in the mean of the last five rounds; None for runs without rounds.
        head: with closed-form heads on both; None where one of them has none.
        rounds, megabytes: rounds until the method first has the best balanced accuracy that the reference reaches in
            the whole run, and what all clients sent and received until then (10^6 bytes); the mean over the seeds, None
            if a seed never gets there.
    """

    label: str
    seeds: int
    last5: Gap | None
    head: Gap | None
    rounds: float | None
    megabytes: float | None


def differences(runs: Sequence[RunResult], reference: str) -> list[Difference]:
    """Compare every other label with the label ``reference``, in the order in which the labels come.

    Labels without a seed in common with the reference are left out, and so are runs that failed or were not scored.
    """
    good = (run for run in runs if run.error is None)
    scored = [run for run in good if (run.last5_balanced_accuracy, run.head_balanced_accuracy) != (None, None)]
    base = {run.seed: run for run in scored if run.label == reference}
    pairs: dict[str, list[tuple[RunResult, RunResult]]] = {}
    for run in scored:
        if run.label != reference and run.seed in base:
            pairs.setdefault(run.label, []).append((run, base[run.seed]))
    return [_difference(label, matched) for label, matched in pairs.items()]


def _difference(label: str, pairs: Sequence[tuple[RunResult, RunResult]]) -> Difference:
    reached = [_reaches(run, other.best_balanced_accuracy) for run, other in pairs]
    costs = [cost for cost in reached if cost is not None]
    complete = len(costs) == len(pairs)
    return Difference(
        label,
        len(pairs),
        Gap.of([(run.last5_balanced_accuracy, other.last5_balanced_accuracy) for run, other in pairs]),
        Gap.of([(run.head_balanced_accuracy, other.head_balanced_accuracy) for run, other in pairs]),
        fmean(rounds for rounds, _ in costs) if complete else None,
        fmean(size for _, size in costs) / 1e6 if complete else None,
    )


def half_width(values: Sequence[float]) -> float | None:
    """Return half the width of the 95 % interval of a mean by Student's t distribution; None for one value."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def _reaches(run: RunResult, accuracy: float | None) -> tuple[int, int] | None:
    """Return rounds and bytes until a run first has a balanced accuracy; None if it never does."""
    size = 0
    for record in run.rounds:
        size += record.bytes_up + record.bytes_down
        if accuracy is not None and record.balanced_accuracy is not None and record.balanced_accuracy >= accuracy:
            return record.round, size
    return None
