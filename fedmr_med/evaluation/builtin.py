"""The metrics of this package."""

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from fedmr_med.evaluation import clinical
from fedmr_med.evaluation.base import Counts, Estimate, Metric, Value, register
from fedmr_med.evaluation.clinical import FloatArray, IntArray, ScoreHistograms


def _accuracy(counts: Counts) -> Estimate:
    return _rate(float(np.trace(counts.confusion)), int(counts.confusion.sum()))


def _balanced_accuracy(counts: Counts) -> Estimate:
    """Return the mean recall of the classes that are there; the errors of different classes are independent."""
    present = counts.confusion.sum(1) > 0
    if not present.any():
        return Estimate(value=0.0, low=0.0, high=1.0)
    right, images = np.diag(counts.confusion)[present], counts.confusion.sum(1)[present]
    # Agresti and Coull's two successes and two failures keep a class without an error from looking certain.
    safe = (right + 2) / (images + 4)
    error = math.sqrt(float((safe * (1 - safe) / (images + 4)).sum())) / int(present.sum())
    return _between(float((right / images).mean()), error)


def _sensitivity(counts: Counts) -> list[Estimate | None]:
    return _rates(np.diag(counts.confusion), counts.confusion.sum(1))


def _specificity(counts: Counts) -> list[Estimate | None]:
    others = counts.confusion.sum() - counts.confusion.sum(1)
    false = counts.confusion.sum(0) - np.diag(counts.confusion)
    return _rates(others - false, others)


def _auroc(counts: Counts) -> list[Estimate | None]:
    if counts.histograms is None or counts.ranking is None:
        return []
    found: list[Estimate | None] = []
    sides = zip(counts.histograms.positives.sum(1).tolist(), counts.histograms.negatives.sum(1).tolist(), strict=True)
    for auroc, error, (own, others) in zip(counts.ranking.auroc, counts.ranking.auroc_error, sides, strict=True):
        least = clinical.hanley_mcneil(auroc, own, others) if own and others else math.nan
        found.append(_between(auroc, np.fmax(error, least)) if own and others else None)  # fmax ignores NaN
    return found


def _auprc(counts: Counts) -> list[Estimate | None]:
    if counts.histograms is None or counts.ranking is None:
        return []
    pairs = zip(counts.ranking.average_precision, counts.histograms.positives.sum(1), strict=True)
    return [None if math.isnan(area) else _interval(area, clinical.logit_interval(area, own)) for area, own in pairs]


def _at_threshold(side: str, counts: Counts) -> list[Estimate | None]:
    """Return the sensitivity or specificity of each class at its threshold."""
    if counts.histograms is None or counts.ranking is None:
        return []
    rates: FloatArray = getattr(counts.ranking, side)
    images = (counts.histograms.positives if side == "sensitivity" else counts.histograms.negatives).sum(1)
    chosen = np.where(counts.edges >= 0, images, 0)
    return _rates(np.nan_to_num(rates[np.arange(len(images)), counts.edges]) * images, chosen)


def _of_histograms(value: Callable[[ScoreHistograms, int], Value]) -> Callable[[Counts], Value]:
    """Return a metric of the histograms and their number of images; it has no value without them."""
    return lambda counts: value(counts.histograms, counts.histograms.samples) if counts.histograms else None


def _brier(histograms: ScoreHistograms, images: int) -> Estimate:
    mean, squares = histograms.brier / images
    return _between(mean, math.sqrt(max(0.0, squares - mean**2) / images), most=2.0)


def _nll(histograms: ScoreHistograms, images: int) -> float:
    return float(np.interp(1.0, clinical.TEMPERATURES, histograms.nll)) / images


def _calibrated_nll(histograms: ScoreHistograms, images: int) -> float:
    return float(histograms.nll.min()) / images


def _calibration_error(histograms: ScoreHistograms, images: int) -> float:
    return clinical.reliability(histograms.right, histograms.wrong).error


def _calibration_errors(counts: Counts) -> list[float]:
    pairs = zip(counts.histograms.positives, counts.histograms.negatives, strict=True) if counts.histograms else ()
    return [clinical.reliability(own, others).error for own, others in pairs]


def _rates(successes: Iterable[float], trials: IntArray) -> list[Estimate | None]:
    return [_rate(float(right), int(n)) if n else None for right, n in zip(successes, trials, strict=True)]


def _rate(successes: float, trials: int) -> Estimate:
    return _interval(successes / max(trials, 1), clinical.wilson(successes, trials))


def _between(value: float, error: float, most: float = 1.0) -> Estimate:
    return _interval(value, clinical.normal_interval(value, error, most))


def _interval(value: float, ends: tuple[float, float]) -> Estimate:
    return Estimate(value=float(value), low=float(ends[0]), high=float(ends[1]))


_lower = partial(Metric, higher_is_better=False)

for _metric in (
    Metric("balanced_accuracy", "balanced accuracy", _balanced_accuracy),
    Metric("accuracy", "accuracy", _accuracy),
    Metric("sensitivity", "sensitivity", by_class=_sensitivity, format=".2f"),
    Metric("specificity", "specificity", by_class=_specificity, format=".2f"),
    Metric("auroc", "AUROC", "mean", _auroc, binned=True),
    Metric("auprc", "AUPRC", "mean", _auprc, binned=True),
    *(
        Metric(
            f"threshold_{side}",
            f"{side} at the threshold",
            by_class=partial(_at_threshold, side),
            format=".2f",
            binned=True,
        )
        for side in ("sensitivity", "specificity")
    ),
    _lower(
        "calibration_error",
        "calibration error (ECE)",
        _of_histograms(_calibration_error),
        _calibration_errors,
        binned=True,
    ),
    _lower("brier", "Brier score (0 to 2)", _of_histograms(_brier)),
    _lower("nll", "log loss", _of_histograms(_nll)),
    _lower("calibrated_nll", "log loss at the best temperature", _of_histograms(_calibrated_nll)),
):
    register(_metric)
