"""Methods of a comparison against one of them, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedmr_med.evaluation.results import RunResult


@dataclass(frozen=True)
class Difference:
    """A method minus the reference, over the seeds that both have.

    Attributes:
        label: the method.
        seeds: how many pairs there are.
        mean: of the differences in the mean accuracy of the last five rounds.
        half_width: of the 95 % confidence interval around it by Student's t distribution; None with one pair.
        head: the same difference with closed-form heads on both; None where one of them has none.
        rounds, megabytes: rounds until the method first has the best accuracy that the reference reaches in the whole
            run, and what all clients sent and received until then (10^6 bytes); the mean over the seeds, None if a
            seed never gets there.
    """

    label: str
    seeds: int
    mean: float
    half_width: float | None
    head: float | None
    rounds: float | None
    megabytes: float | None


def differences(runs: Sequence[RunResult], reference: str) -> list[Difference]:
    """Compare every other label with the label ``reference``, in the order in which the labels come.

    Labels without a seed in common with the reference are left out, and so are runs that failed or were not scored.
    """
    scored = [run for run in runs if run.error is None and run.last5_accuracy is not None]
    base = {run.seed: run for run in scored if run.label == reference}
    labels = dict.fromkeys(run.label for run in scored if run.label != reference)
    pairs = {
        label: [(run, base[run.seed]) for run in scored if run.label == label and run.seed in base] for label in labels
    }
    return [_difference(label, matched) for label, matched in pairs.items() if matched]


def _difference(label: str, pairs: Sequence[tuple[RunResult, RunResult]]) -> Difference:
    gaps = [(run.last5_accuracy or 0.0) - (other.last5_accuracy or 0.0) for run, other in pairs]
    heads = [
        run.head_accuracy - other.head_accuracy
        for run, other in pairs
        if run.head_accuracy is not None and other.head_accuracy is not None
    ]
    reached = [_reaches(run, other.best_accuracy or 0.0) for run, other in pairs]
    costs = [cost for cost in reached if cost is not None]
    complete = len(costs) == len(pairs)
    return Difference(
        label,
        len(pairs),
        fmean(gaps),
        half_width(gaps),
        fmean(heads) if len(heads) == len(pairs) else None,
        fmean(rounds for rounds, _ in costs) if complete else None,
        fmean(size for _, size in costs) / 1e6 if complete else None,
    )


def half_width(values: Sequence[float], confidence: float = 0.95) -> float | None:
    """Return half the width of the confidence interval of a mean by Student's t distribution; None for one value."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    return float(t.ppf((1 + confidence) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def _reaches(run: RunResult, accuracy: float) -> tuple[int, int] | None:
    """Return rounds and bytes until a run first has an accuracy; None if it never does."""
    size = 0
    for record in run.rounds:
        size += record.bytes_up + record.bytes_down
        if record.accuracy is not None and record.accuracy >= accuracy:
            return record.round, size
    return None
