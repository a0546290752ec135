"""The figures of the demo, row by row, over seeds and hospitals."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.seeds import Spread
from fedmr_med.runner.showcase.plan import CLASSES, HOSPITALS, LABELS, LAST
from fedmr_med.runner.showcase.work import Outcome


@dataclass(frozen=True)
class Row:
    """What one way of training came to.

    Attributes:
        label: its name.
        score: balanced accuracy on the test pictures of all hospitals, mean of the last five rounds.
        held, missing: sensitivity of the last model for the classes that a hospital holds, and for those that it
            lacks; mean over the hospitals.
        head: balanced accuracy of the last model with its closed-form head; None where none was made.
        recall: (C,) sensitivity of the last model for each class.
        curves: balanced accuracy by round, from round 1, for each seed.
    """

    label: str
    score: Spread
    held: Spread
    missing: Spread
    head: Spread | None
    recall: tuple[float, ...]
    curves: tuple[tuple[float, ...], ...]


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return the rows of the demo's tables in their order."""
    return [_row(label, [o for o in outcomes if o.run.label == label]) for label in LABELS]


def _row(label: str, outcomes: Sequence[Outcome]) -> Row:
    seeds = sorted({outcome.run.job.seed for outcome in outcomes})
    by_seed = [[outcome for outcome in outcomes if outcome.run.job.seed == seed] for seed in seeds]
    heads = [outcome.result.head_balanced_accuracy for outcome in outcomes]
    known = [head for head in heads if head is not None]
    return Row(
        label,
        score=Spread.of(fmean(curve[-LAST:]) for curve in map(_curve, by_seed)),
        held=Spread.of(_of_hospitals(of_seed, held=True) for of_seed in by_seed),
        missing=Spread.of(_of_hospitals(of_seed, held=False) for of_seed in by_seed),
        head=Spread.of(known) if known else None,
        recall=tuple(np.mean([recalls(outcome) for outcome in outcomes], axis=0).tolist()),
        curves=tuple(map(_curve, by_seed)),
    )


def recalls(outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the sensitivity of the last model for each class, (C,)."""
    right = outcome.answers.argmax(1) == outcome.labels
    return np.array([right[outcome.labels == label].mean() for label in range(len(CLASSES))])


def holds(hospital: str) -> npt.NDArray[np.bool_]:
    """Return which classes a hospital holds, (C,)."""
    return np.isin(CLASSES, HOSPITALS[hospital])


def _curve(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """Return the balanced accuracy by round; the mean of the hospitals where each trained alone."""
    curves = [[r.balanced_accuracy or 0.0 for r in outcome.result.rounds] for outcome in outcomes]
    return tuple(fmean(values) for values in zip(*curves, strict=True))


def _of_hospitals(outcomes: Sequence[Outcome], *, held: bool) -> float:
    """Return the mean sensitivity, over the hospitals, for the classes that each holds, or lacks."""
    return fmean(
        float(recalls(outcome)[holds(hospital) == held].mean())
        for outcome in outcomes
        for hospital in outcome.run.sites
    )
