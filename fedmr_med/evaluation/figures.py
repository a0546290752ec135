"""What results keep of one model on one test set: every metric, curves, and thresholds.

See :mod:`fedmr_med.evaluation.catalog` for metrics and :mod:`fedmr_med.evaluation.clinical` for what they are made of.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from fedmr_med.evaluation import clinical
from fedmr_med.evaluation.base import DIGITS, Counts, Values, short
from fedmr_med.evaluation.catalog import described, measure
from fedmr_med.evaluation.clinical import EDGES, IntArray
from fedmr_med.evaluation.metrics import Scores, classes_text
from fedmr_med.evaluation.sets import SetThresholds
from fedmr_med.schema import Omitted, Strict

_CURVE_POINTS = 40
# What schema version 1 kept as keys of their own.
_FIRST_METRICS = (
    *("accuracy", "balanced_accuracy", "auroc", "auprc", "brier", "nll", "calibration_error", "calibrated_nll"),
    *("sensitivity", "specificity", "threshold_sensitivity", "threshold_specificity"),
)


class _Measured(Strict):
    """Figures by the name of their metric; names that are not registered here are kept as they are."""

    metrics: Values = {}

    def text(self, name: str) -> str:
        """Return a metric's value as people read it, or a dash."""
        return described(name).text(self.metrics.get(name))

    @model_validator(mode="before")
    @classmethod
    def _reads_version_1(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "metrics" in content:
            return content
        first = {name: content[name] for name in _FIRST_METRICS if content.get(name) is not None}
        metrics = {name: value if isinstance(value, dict) else {"value": value} for name, value in first.items()}
        return {key: value for key, value in content.items() if key not in _FIRST_METRICS} | {"metrics": metrics}


class ReliabilityPoint(Strict):
    """Images with nearly the same predicted probability: how many, that probability, and how often it was true."""

    count: int
    predicted: float
    observed: float


class ClassFigures(_Measured):
    """One class against all others.

    Attributes:
        status: ``scored``; ``held_back``: the site lets nothing of this class out, be it of few images or of none;
            ``none``: there is no test image of it.
        positives, negatives: test images of the class, and of others, that count here.
        metrics: what the class has of every metric.
        threshold: probability from which on the class is called, chosen for the largest sum of sensitivity and
            specificity over all sites together.
        reliability: of the class's probability; points without images are left out.
        roc: points (1 - specificity, sensitivity) of the ROC curve, from (0, 0) to (1, 1).
    """

    status: Literal["scored", "held_back", "none"]
    positives: int = 0
    negatives: int = 0
    threshold: float | None = None
    reliability: tuple[ReliabilityPoint, ...] = ()
    roc: tuple[tuple[float, float], ...] = ()


class Figures(_Measured):
    """What a confusion matrix and score histograms tell of a model.

    Attributes:
        samples: test images that count.
        confusion: (C, C) counts, row = true class, column = the model's answer; rows held back are zero.
        classes: one entry per class, in the order of the labels.
        metrics: every metric for all classes together, as far as sites share what it is made of.
        reliability: of the probability of the model's answer, over the sites that share these counts; a site holds
            them back where few answers are wrong or right.
        design_effect: by how much the variance of the mean recall is larger than that of as many independent images;
            None where no site tells which images are of one patient.
        temperature: to divide logits by, so that probabilities fit these images best; None where classes are missing.
        set_thresholds: see there; of the pooled figures alone, and empty where no site shares histograms.
    """

    samples: int
    confusion: tuple[tuple[int, ...], ...]
    classes: tuple[ClassFigures, ...]
    reliability: tuple[ReliabilityPoint, ...] = ()
    temperature: float | None = None
    design_effect: Omitted[float] = None
    set_thresholds: Annotated[SetThresholds, Field(exclude_if=lambda value: not value)] = {}

    @property
    def coverage(self) -> str:
        """How many of the classes count, in words."""
        return classes_text(sum(found.positives > 0 for found in self.classes), len(self.classes))

    @property
    def unit(self) -> str:
        """What intervals assume of images and patients, in words."""
        if self.design_effect is None:
            return "assume that no two images are of one patient"
        return f"treat the images of a patient as one cluster (design effect {self.design_effect:.1f})"

    @property
    def recall(self) -> str:
        """The mean recall as people read it: the balanced accuracy, where all classes count."""
        return self.text("balanced_accuracy" if "balanced_accuracy" in self.metrics else "mean_recall")

    @property
    def thresholds(self) -> tuple[float | None, ...]:
        """The threshold of each class."""
        return tuple(c.threshold for c in self.classes)


def figures(scores: Scores, thresholds: Sequence[float | None] | None = None) -> Figures | None:
    """Return the figures of a test set; None where its confusion matrix is not shared.

    Without ``thresholds`` of the classes they are chosen on these images, if all classes count.
    """
    if scores.confusion is None:
        return None
    histograms = scores.histograms if scores.histograms and scores.histograms.samples else None
    counts = Counts(scores.confusion, histograms, thresholds, scores.clustering)
    metrics, of_classes = measure(counts)
    return Figures(
        samples=scores.samples,
        confusion=tuple(tuple(row) for row in scores.confusion.tolist()),
        classes=tuple(
            ClassFigures(
                status="held_back" if label in scores.withheld else "scored" if images else "none",
                positives=images,
                negatives=int(scores.confusion.sum()) - images,
                metrics=known,
                **_curves(counts, label),
            )
            for label, (images, known) in enumerate(zip(scores.confusion.sum(1).tolist(), of_classes, strict=True))
        ),
        metrics=metrics,
        reliability=_reliability(histograms.right, histograms.wrong) if histograms else (),
        temperature=short(clinical.best_temperature(histograms.nll)[0]) if histograms and counts.chooses else None,
        design_effect=None if scores.clustering is None else short(counts.effect("mean_recall")),
    )


def _curves(counts: Counts, label: int) -> dict[str, Any]:
    """Return the curves of a class and its threshold; nothing without histograms."""
    if counts.histograms is None or counts.ranking is None:
        return {}
    own, others, edge = counts.histograms.positives[label], counts.histograms.negatives[label], counts.edges[label]
    rates = 1 - counts.ranking.specificity[label], counts.ranking.sensitivity[label]
    return {
        "threshold": short(EDGES[edge]) if edge >= 0 else None,
        "reliability": _reliability(own, others),
        "roc": _curve(*rates) if own.any() and others.any() else (),
    }


def _reliability(events: IntArray, others: IntArray) -> tuple[ReliabilityPoint, ...]:
    found = clinical.reliability(events, others)
    return tuple(
        ReliabilityPoint(count=int(n), predicted=short(p), observed=short(o))
        for n, p, o in zip(found.counts, found.predicted, found.observed, strict=True)
        if n
    )


def _curve(x: clinical.FloatArray, y: clinical.FloatArray) -> tuple[tuple[float, float], ...]:
    """Return at most ``_CURVE_POINTS`` points of a curve, from its start at (0, 0), evenly along its length."""
    points = np.unique(np.stack([x, y], 1)[::-1].round(DIGITS), axis=0)
    length = np.concatenate([[0], np.cumsum(np.abs(np.diff(points, axis=0)).sum(1))])
    wanted = np.linspace(0, length[-1], _CURVE_POINTS)
    chosen = np.unique(np.abs(length[None] - wanted[:, None]).argmin(1))
    return tuple((float(a), float(b)) for a, b in points[chosen])
