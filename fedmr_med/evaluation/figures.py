"""The clinical figures of one model on one test set, as results keep them. See :mod:`fedmr_med.evaluation.clinical`."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedmr_med.evaluation import clinical
from fedmr_med.evaluation.clinical import EDGES, IntArray, Ranking, Reliability
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.schema import Strict

_DIGITS = 4
_CURVE_POINTS = 40
# A curve that rises in so few steps comes from cells that were joined, because each held few images of the class.
_ROUGH_STEPS = 8


class Estimate(Strict):
    """A figure and its interval of 95 %."""

    value: float
    low: float
    high: float


class ReliabilityPoint(Strict):
    """Images with nearly the same predicted probability: how many, that probability, and how often it was true."""

    count: int
    predicted: float
    observed: float


class ClassFigures(Strict):
    """One class against all others.

    Attributes:
        status: ``scored``; ``held_back``: the site lets nothing of this class out, be it of few images or of none;
            ``none``: there is no test image of it.
        positives, negatives: test images of the class, and of others, that count here.
        auroc, auprc: area under the ROC curve and average precision; None without positives or negatives, or where
            only the confusion matrix is shared.
        sensitivity, specificity: of the model's own answer, the class of the largest probability.
        threshold: probability from which on the class is called, chosen for the largest sum of sensitivity and
            specificity over all sites together.
        threshold_sensitivity, threshold_specificity: at that threshold.
        calibration_error, reliability: of the class's probability; points without images are left out.
        roc: points (1 - specificity, sensitivity) of the ROC curve, from (0, 0) to (1, 1).
    """

    status: Literal["scored", "held_back", "none"]
    positives: int = 0
    negatives: int = 0
    auroc: Estimate | None = None
    auprc: Estimate | None = None
    sensitivity: Estimate | None = None
    specificity: Estimate | None = None
    threshold: float | None = None
    threshold_sensitivity: Estimate | None = None
    threshold_specificity: Estimate | None = None
    calibration_error: float | None = None
    reliability: tuple[ReliabilityPoint, ...] = ()
    roc: tuple[tuple[float, float], ...] = ()

    @property
    def rough(self) -> bool:
        """Whether the curves come from a few cells, as the small-cell rule leaves them: their areas can be far off."""
        return bool(self.roc) and len({sensitivity for _, sensitivity in self.roc}) <= _ROUGH_STEPS


class Figures(Strict):
    """What a confusion matrix and score histograms tell of a model.

    Attributes:
        samples: test images that count.
        confusion: (C, C) counts, row = true class, column = the model's answer; rows held back are zero.
        classes: one entry per class, in the order of the labels.
        accuracy, balanced_accuracy: with intervals.
        auroc, auprc: mean over the classes that have them; the interval is one that holds however the classes' errors
            depend on each other.
        brier: mean Brier score of all classes together, from 0 (perfect) to 2.
        nll: mean negative log-likelihood.
        calibration_error, reliability: of the probability of the model's answer: expected calibration error in ten
            bins, over the sites that share these counts; a site holds them back where few answers are wrong or right.
        temperature: to divide logits by, so that probabilities fit these images best.
        calibrated_nll: the negative log-likelihood then.
    """

    samples: int
    confusion: tuple[tuple[int, ...], ...]
    classes: tuple[ClassFigures, ...]
    accuracy: Estimate
    balanced_accuracy: Estimate
    auroc: Estimate | None = None
    auprc: Estimate | None = None
    brier: Estimate | None = None
    nll: float | None = None
    calibration_error: float | None = None
    reliability: tuple[ReliabilityPoint, ...] = ()
    temperature: float | None = None
    calibrated_nll: float | None = None

    @property
    def rough(self) -> bool:
        """Whether the curves of any class come from a few cells."""
        return any(found.rough for found in self.classes)

    @property
    def thresholds(self) -> tuple[float | None, ...]:
        """The threshold of each class."""
        return tuple(c.threshold for c in self.classes)


def figures(scores: Scores, thresholds: Sequence[float | None] | None = None) -> Figures | None:
    """Return the figures of a test set; None where its confusion matrix is not shared.

    Args:
        scores: the matrix and, where there are, the histograms.
        thresholds: of each class; None chooses them on these images.
    """
    matrix, histograms = scores.confusion, scores.histograms
    if matrix is None:
        return None
    classes = [_of_answers(matrix, label, scores.withheld) for label in range(len(matrix))]
    common = {
        "samples": scores.samples,
        "confusion": tuple(tuple(row) for row in matrix.tolist()),
        "accuracy": _rate(int(np.trace(matrix)), scores.samples),
        "balanced_accuracy": _balanced(matrix),
    }
    if histograms is None or not histograms.samples:
        return Figures(**common, classes=tuple(classes))
    rates = clinical.ranking(histograms.positives, histograms.negatives)
    edges = clinical.best_thresholds(rates) if thresholds is None else _edges(thresholds)
    for label, known in enumerate(classes):
        own, others = histograms.positives[label], histograms.negatives[label]
        classes[label] = known.model_copy(
            update=_of_ranking(rates, label, int(edges[label]), int(own.sum()), int(others.sum()))
            | _of_calibration(clinical.reliability(own, others))
        )
    counted = histograms.samples
    mean, squares = histograms.brier / counted
    error = math.sqrt(max(0.0, squares - mean**2) / counted)
    temperature = clinical.best_temperature(histograms.nll)
    at_one = float(np.interp(1.0, clinical.TEMPERATURES, histograms.nll))
    return Figures(
        **common,
        classes=tuple(classes),
        auroc=_mean([c.auroc for c in classes]),
        auprc=_mean([c.auprc for c in classes]),
        brier=_estimate(mean, *clinical.normal_interval(mean, error, most=2.0)),
        nll=_short(at_one / counted),
        temperature=_short(temperature),
        calibrated_nll=_short(float(histograms.nll.min()) / counted),
        **_of_calibration(clinical.reliability(histograms.right, histograms.wrong)),
    )


def _of_answers(matrix: IntArray, label: int, withheld: tuple[int, ...]) -> ClassFigures:
    """Evaluate the model's own answers for one class."""
    positives = int(matrix[label].sum())
    negatives = int(matrix.sum()) - positives
    false = int(matrix[:, label].sum() - matrix[label, label])
    status: Literal["scored", "held_back", "none"] = "scored" if positives else "none"
    return ClassFigures(
        status="held_back" if label in withheld else status,
        positives=positives,
        negatives=negatives,
        sensitivity=_rate(int(matrix[label, label]), positives) if positives else None,
        specificity=_rate(negatives - false, negatives) if negatives else None,
    )


def _of_ranking(rates: Ranking, label: int, edge: int, positives: int, negatives: int) -> dict[str, object]:
    found: dict[str, object] = {}
    if edge >= 0:
        # A rate of a side without images is not a number, and told as none.
        pairs = (("sensitivity", rates.sensitivity, positives), ("specificity", rates.specificity, negatives))
        found["threshold"] = _short(float(EDGES[edge]))
        for name, values, trials in pairs:
            found[f"threshold_{name}"] = _rate(float(values[label, edge]) * trials, trials) if trials else None
    if not positives or not negatives:
        return found
    auroc, error = float(rates.auroc[label]), float(rates.auroc_error[label])
    error = np.fmax(error, clinical.hanley_mcneil(auroc, positives, negatives))  # which ignores NaN
    low, high = clinical.normal_interval(auroc, error)
    precision = float(rates.average_precision[label])
    return found | {
        "auroc": _estimate(auroc, low, high),
        "auprc": _estimate(precision, *clinical.logit_interval(precision, positives)),
        "roc": _curve(1 - rates.specificity[label], rates.sensitivity[label]),
    }


def _of_calibration(found: Reliability) -> dict[str, object]:
    points = tuple(
        ReliabilityPoint(count=int(n), predicted=_short(float(p)), observed=_short(float(o)))
        for n, p, o in zip(found.counts, found.predicted, found.observed, strict=True)
        if n
    )
    error = None if math.isnan(found.error) else _short(found.error)
    return {"calibration_error": error, "reliability": points}


def _edges(thresholds: Sequence[float | None]) -> IntArray:
    """Return the nearest edge of each threshold; -1 for none."""
    nearest = [-1 if value is None else int(np.abs(EDGES - value).argmin()) for value in thresholds]
    return np.array(nearest, dtype=np.int64)


def _curve(x: clinical.FloatArray, y: clinical.FloatArray) -> tuple[tuple[float, float], ...]:
    """Return at most ``_CURVE_POINTS`` points of a curve, from its start at (0, 0), evenly along its length."""
    points = np.unique(np.stack([x, y], 1)[::-1].round(_DIGITS), axis=0)
    length = np.concatenate([[0], np.cumsum(np.abs(np.diff(points, axis=0)).sum(1))])
    wanted = np.linspace(0, length[-1], _CURVE_POINTS)
    chosen = np.unique(np.abs(length[None] - wanted[:, None]).argmin(1))
    return tuple((float(a), float(b)) for a, b in points[chosen])


def _balanced(matrix: IntArray) -> Estimate:
    """Return the mean recall of the classes that are there; the errors of different classes are independent."""
    counts = matrix.sum(1)
    present = counts > 0
    if not present.any():
        return Estimate(value=0.0, low=0.0, high=1.0)
    recall = np.diag(matrix)[present] / counts[present]
    # Agresti and Coull's two successes and two failures keep a class without an error from looking certain.
    safe = (np.diag(matrix)[present] + 2) / (counts[present] + 4)
    error = math.sqrt(float((safe * (1 - safe) / (counts[present] + 4)).sum())) / int(present.sum())
    value = float(recall.mean())
    return _estimate(value, *clinical.normal_interval(value, error))


def _mean(estimates: Sequence[Estimate | None]) -> Estimate | None:
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return None
    columns = ((e.value for e in known), (e.low for e in known), (e.high for e in known))
    return _estimate(*(sum(column) / len(known) for column in columns))


def _rate(successes: float, trials: int) -> Estimate:
    return _estimate(successes / max(trials, 1), *clinical.wilson(successes, trials))


def _estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=_short(value), low=_short(low), high=_short(high))


def _short(value: float) -> float:
    return round(float(value), _DIGITS)
