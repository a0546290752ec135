"""The metrics by name: those of this package, and what others register.

Whatever is registered appears in results, reports, model cards and the output of commands. A package adds its own by an
entry point of the group ``fedmr_med.metrics``, a script by :func:`register`::

    def kappa(counts: Counts) -> float:
        table = counts.confusion / counts.confusion.sum()
        chance = float(table.sum(0) @ table.sum(1))
        return (float(table.trace()) - chance) / (1 - chance)

    register(Metric("kappa", "Cohen's kappa", overall=kappa))

Metrics run where scores are pooled, as at the server; a site that answers a task loads none but those of this package.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

import numpy as np

from fedmr_med.evaluation import clinical
from fedmr_med.evaluation.base import Counts, Estimate, Metric, Value, Values
from fedmr_med.evaluation.clinical import FloatArray, IntArray, ScoreHistograms
from fedmr_med.registry import Registry

_log = logging.getLogger(__name__)

METRICS: Registry[Metric] = Registry(
    "metric",
    group="fedmr_med.metrics",
    fits=lambda name, item: isinstance(item, Metric) and item.name == name,
)


def register(metric: Metric) -> Metric:
    """Make a metric known by its name. A package of its own may use an entry point instead."""
    return METRICS.add(metric.name, metric)


def described(name: str) -> Metric:
    """Return a metric for its title and format; one that is not registered here, as in another's results, is plain."""
    return METRICS.get(name) if name in METRICS else Metric(name, name)


def measure(counts: Counts) -> tuple[Values, list[Values]]:
    """Return every registered metric's value for all classes together, and the values of each class.

    A metric that does not load or raises an error is left out, which the log says: no reason to lose a run.
    """
    overall: Values = {}
    classes: list[Values] = [{} for _ in counts.confusion]
    for name in METRICS:
        try:
            found, of_classes = METRICS.get(name).values(counts)
        except Exception as e:  # whatever another package's own code raises
            _left_out(name, f"{type(e).__name__}: {e}")
            continue
        for known, value in zip([overall, *classes], [found, *of_classes], strict=True):
            if value is not None:
                known[name] = value
    return overall, classes


@cache
def _left_out(name: str, reason: str) -> None:
    """Say it once, and not for every site and round."""
    _log.error("metric %s cannot be computed and is left out (%s)", name, reason)


def names_in(mappings: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the names of the metrics in some mappings, each once, in the order in which they come."""
    return tuple(dict.fromkeys(name for mapping in mappings for name in mapping))


def _accuracy(counts: Counts) -> Estimate:
    return _rate(float(np.trace(counts.confusion)), int(counts.confusion.sum()), counts.effect("accuracy"))


def _balanced_accuracy(counts: Counts) -> Estimate | None:
    return _recall(counts) if counts.present.all() else None


def _mean_recall(counts: Counts) -> Estimate | None:
    return None if counts.present.all() else _recall(counts)


def _recall(counts: Counts) -> Estimate:
    """Return the mean recall of the classes that count; the errors of different classes are independent."""
    present = counts.present
    right, images = np.diag(counts.confusion)[present], counts.confusion.sum(1)[present]
    # Agresti and Coull's two successes and two failures keep a class without an error from looking certain.
    safe = (right + 2) / (images + 4)
    spread = float((safe * (1 - safe) / (images + 4)).sum()) * counts.effect("mean_recall")
    error = math.sqrt(spread) / int(present.sum())
    return _between(float((right / images).mean()), error)


def _sensitivity(counts: Counts) -> list[Estimate | None]:
    return _rates(np.diag(counts.confusion), counts.confusion.sum(1), counts.effects("sensitivity"))


def _specificity(counts: Counts) -> list[Estimate | None]:
    others = counts.confusion.sum() - counts.confusion.sum(1)
    false = counts.confusion.sum(0) - np.diag(counts.confusion)
    return _rates(others - false, others, counts.effects("specificity"))


def _auroc(counts: Counts) -> list[Estimate | None]:
    found = (counts.auroc(label) for label in range(len(counts.confusion)))
    pairs = zip(found, counts.effects("auroc"), strict=True)
    return [_between(one[0], one[1] * math.sqrt(effect)) if one else None for one, effect in pairs]


def _auprc(counts: Counts) -> list[Estimate | None]:
    if counts.histograms is None or counts.ranking is None:
        return []
    independent = counts.histograms.positives.sum(1) / counts.effects("auroc")
    pairs = zip(counts.ranking.average_precision, independent, strict=True)
    return [None if math.isnan(area) else _interval(area, clinical.logit_interval(area, own)) for area, own in pairs]


def _at_threshold(side: str, counts: Counts) -> list[Estimate | None]:
    """Return the sensitivity or specificity of each class at its threshold."""
    if counts.histograms is None or counts.ranking is None:
        return []
    rates: FloatArray = getattr(counts.ranking, side)
    images = (counts.histograms.positives if side == "sensitivity" else counts.histograms.negatives).sum(1)
    chosen = np.where(counts.edges >= 0, images, 0)
    return _rates(np.nan_to_num(rates[np.arange(len(images)), counts.edges]) * images, chosen, counts.effects(side))


def _brier(counts: Counts) -> Estimate | None:
    if counts.histograms is None:
        return None
    images = counts.histograms.samples
    mean, squares = counts.histograms.brier / images
    error = math.sqrt(max(0.0, squares - mean**2) / images * counts.effect("brier"))
    return _between(mean, error, most=2.0)


def _of_histograms(value: Callable[[ScoreHistograms], float]) -> Callable[[Counts], Value]:
    """Return a metric of the histograms; it has no value without them."""
    return lambda counts: value(counts.histograms) if counts.histograms else None


def _calibration_errors(counts: Counts) -> list[float]:
    pairs = zip(counts.histograms.positives, counts.histograms.negatives, strict=True) if counts.histograms else ()
    return [clinical.reliability(own, others).error for own, others in pairs]


def _rates(successes: Iterable[float], trials: IntArray, effects: FloatArray) -> list[Estimate | None]:
    parts = zip(successes, trials, effects, strict=True)
    return [_rate(float(right), int(n), float(effect)) if n else None for right, n, effect in parts]


def _rate(successes: float, trials: int, effect: float) -> Estimate:
    """Return a rate with the interval of so many times fewer independent trials."""
    return _interval(successes / max(trials, 1), clinical.wilson(successes / effect, trials / effect))


def _between(value: float, error: float, most: float = 1.0) -> Estimate:
    return _interval(value, clinical.normal_interval(value, error, most))


def _interval(value: float, ends: tuple[float, float]) -> Estimate:
    return Estimate(value=float(value), low=float(ends[0]), high=float(ends[1]))


_lower = partial(Metric, higher_is_better=False)

for _metric in (
    Metric("balanced_accuracy", "balanced accuracy", _balanced_accuracy),
    Metric("mean_recall", "mean recall of the classes that count", _mean_recall),
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
        _of_histograms(lambda h: clinical.reliability(h.right, h.wrong).error),
        _calibration_errors,
        binned=True,
    ),
    _lower("brier", "Brier score (0 to 2)", _brier),
    _lower("nll", "log loss", _of_histograms(lambda h: float(h.nll[clinical.TEMPERATURES == 1.0].item()) / h.samples)),
    _lower(
        "calibrated_nll",
        "log loss at the best temperature",
        _of_histograms(lambda h: clinical.best_temperature(h.nll)[1] / h.samples),
    ),
):
    register(_metric)
