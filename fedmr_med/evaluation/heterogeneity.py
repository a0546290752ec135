"""How much a model's figures differ between hospitals, and between subgroups (TRIPOD-Cluster, Debray et al., BMJ 2023).

Sensitivities and AUROCs of the hospitals are put together by a random-effects meta-analysis on the logit scale: the
variance between hospitals by DerSimonian and Laird (1986), and the interval of 95 % in which the figure of a new
hospital is expected by Higgins, Thompson and Spiegelhalter (2009), with Student's quantile for two hospitals less.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from fedmr_med.evaluation import clinical
from fedmr_med.evaluation.base import Counts, short
from fedmr_med.evaluation.metrics import Scores, recalls
from fedmr_med.schema import Strict

FEWEST = 3
"""Hospitals that a variance between them takes."""

_T975 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448),
    *(2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484),
    *(2.0452, 2.0423),
)
_HALF = 0.5  # of an image, so that a figure of 0 or 1 has a logit


class Between(Strict):
    """A figure of one class over the hospitals.

    Attributes:
        figure: which.
        label: the class.
        sites: how many hospitals tell it.
        mean: of a typical hospital.
        deviation: standard deviation between hospitals, of log-odds.
        low, high: of the interval of 95 % in which a new hospital is expected.
    """

    figure: Literal["sensitivity", "auroc"]
    label: int
    sites: int
    mean: float
    deviation: float
    low: float
    high: float

    @property
    def name(self) -> str:
        """What people call the figure."""
        return "AUROC" if self.figure == "auroc" else self.figure


def student975(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's distribution."""
    if freedom <= len(_T975):
        return _T975[freedom - 1]
    z = clinical.Z95  # Cornish and Fisher's expansion
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def prediction(logits: Sequence[float], variances: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the mean of logits with their own variances, the deviation between them, and the interval of a new one."""
    y, v = np.array(logits), np.array(variances)
    fixed = 1 / v
    spread = float((fixed * (y - (fixed @ y) / fixed.sum()) ** 2).sum())
    scale = float(fixed.sum() - (fixed**2).sum() / fixed.sum())
    between = max(0.0, (spread - (len(y) - 1)) / scale)
    weights = 1 / (v + between)
    mean = float(weights @ y / weights.sum())
    half = student975(len(y) - 2) * math.sqrt(between + 1 / float(weights.sum()))
    return mean, math.sqrt(between), mean - half, mean + half


def between(sites: Mapping[str, Scores]) -> tuple[Between, ...]:
    """Return the figures of each class that enough hospitals share, in the order of the labels."""
    known = [Counts(s.confusion, s.histograms, None, s.clustering) for s in sites.values() if s.confusion is not None]
    if len(known) < FEWEST:
        return ()
    found = []
    for label in range(len(known[0].confusion)):
        parts = {"sensitivity": [_sensitivity(c, label) for c in known], "auroc": [_auroc(c, label) for c in known]}
        for figure, told in parts.items():
            pairs = [pair for pair in told if pair is not None]
            if len(pairs) >= FEWEST:
                mean, deviation, low, high = prediction(*zip(*pairs, strict=True))
                values = {"mean": _logistic(mean), "low": _logistic(low), "high": _logistic(high)}
                rounded = {name: short(value) for name, value in values.items()} | {"deviation": short(deviation)}
                found.append(Between.model_validate({"figure": figure, "label": label, "sites": len(pairs)} | rounded))
    return tuple(found)


def apart_from(part: Scores, whole: Scores) -> float | None:
    """Return by how much the mean recall of a part is above that of all images, over the classes that the part has."""
    if part.confusion is None or whole.confusion is None:
        return None
    pairs = zip(recalls(part.confusion), recalls(whole.confusion), strict=True)
    apart = [own - every for own, every in pairs if own is not None and every is not None]
    return short(sum(apart) / len(apart)) if apart else None


def _sensitivity(counts: Counts, label: int) -> tuple[float, float] | None:
    """Return the logit of a sensitivity and its variance."""
    images, right = int(counts.confusion[label].sum()), int(counts.confusion[label, label])
    if not images:
        return None
    yes, no = right + _HALF, images - right + _HALF
    return math.log(yes / no), (1 / yes + 1 / no) * float(counts.effects("sensitivity")[label])


def _auroc(counts: Counts, label: int) -> tuple[float, float] | None:
    """Return the logit of an AUROC and its variance."""
    found = counts.auroc(label)
    if found is None:
        return None
    margin = _HALF / min(counts.ranked(label))
    area = min(max(found[0], margin), 1 - margin)
    odds = area * (1 - area)
    return math.log(area / (1 - area)), (found[1] / odds) ** 2 * float(counts.effects("auroc")[label])


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
