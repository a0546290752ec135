"""Clinical evaluation that adds up: score histograms of fixed bins, and what follows from their sum.

A site counts, for each class, the images of that class (positives) and the others (negatives) by the probability that
the model gives the class. Counts of different sites are added, so AUROC, average precision, rates at a threshold and
calibration of all sites together come from the sum; :mod:`fedmr_med.evaluation.spreading` hides single scores. Pure
functions on arrays.

Intervals are of 95 %. For AUROC DeLong's on the binned scores (ties count half, as in DeLong et al. 1988), with Hanley
and McNeil's error where that is larger: groups hide some of the spread. For average precision the logit
interval of Boyd et al. (2013), for rates Wilson's, for means normal ones.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.spreading import spread

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

BINS = 200
Z95 = 1.959963984540054
MAX_NLL = 30.0
"""The most a single image can add to the negative log-likelihood."""

RELIABILITY_BINS = 10


def _edges(low: float = -40, high: float = 20, middle: float = -1.5, width: float = 0.5) -> FloatArray:
    """Return the edges of the bins, (BINS + 1,): multiples of 0.1, and steps of log-odds that widen from the middle.

    Equal steps of probability would put a confident network's scores into two bins, equal steps of log-odds an
    undecided one's. The middle is where an undecided network of some classes has its scores.
    """
    first, last = (np.arcsinh((end - middle) / width) for end in (low, high))
    odds = middle + width * np.sinh(np.linspace(first, last, BINS - RELIABILITY_BINS))
    return np.sort(np.concatenate([np.linspace(0, 1, RELIABILITY_BINS + 1), 1 / (1 + np.exp(-odds))]))


EDGES: FloatArray = _edges()
CENTRES: FloatArray = (EDGES[1:] + EDGES[:-1]) / 2

TEMPERATURES: FloatArray = np.array([0.25, 0.5, 1, 2, 4, 8])
"""The temperatures at which the likelihood is summed up: fewer than a class has images, or sums tell single scores."""
_DECIMALS = 1  # of sums of real numbers that leave


@dataclass(frozen=True)
class ScoreHistograms:
    """Additive statistics of a model's probabilities on labelled images.

    Attributes:
        positives, negatives: (C, BINS) int64, images of class c, and of other classes, by the probability of c.
        right, wrong: (BINS,) int64, images by the probability of the class the model answers with.
        nll: (len(TEMPERATURES),) sums of the negative log-likelihood, by temperature.
        brier: (2,) sum and sum of squares of the images' Brier scores, each between 0 and 2.
    """

    positives: IntArray
    negatives: IntArray
    right: IntArray
    wrong: IntArray
    nll: FloatArray
    brier: FloatArray

    @classmethod
    def of(cls, logits: npt.NDArray[np.floating], labels: IntArray) -> "ScoreHistograms":
        """Count the images of ``logits`` (n, C) with ``labels`` (n,)."""
        exact = np.asarray(logits, dtype=np.float64)
        count, classes = exact.shape
        probabilities = softmax(exact)
        bins = bins_of(probabilities)
        own = labels[:, None] == np.arange(classes)
        cells = bins + BINS * np.arange(classes)
        positives, negatives = (
            np.bincount(cells[mask], minlength=BINS * classes).reshape(classes, BINS) for mask in (own, ~own)
        )
        answers = exact.argmax(1)
        confidence = bins[np.arange(count), answers]
        right, wrong = (
            np.bincount(confidence[mask], minlength=BINS) for mask in (answers == labels, answers != labels)
        )
        brier = ((probabilities - own) ** 2).sum(1)
        return cls(
            positives.astype(np.int64),
            negatives.astype(np.int64),
            right.astype(np.int64),
            wrong.astype(np.int64),
            np.array([_nll(exact / t, labels) for t in TEMPERATURES]),
            np.array([brier.sum(), (brier**2).sum()]),
        )

    def __add__(self, other: "ScoreHistograms") -> "ScoreHistograms":
        names = [field.name for field in fields(self)]
        return ScoreHistograms(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def samples(self) -> int:
        """How many images were counted."""
        return int(self.positives.sum())

    def spread(self, least: int) -> "ScoreHistograms":
        """Return histograms that tell groups of ``least`` images and more, and no single score.

        Totals stay; a row with fewer images in all is zero, and ``right`` and ``wrong`` are both zero where one of
        them would be. Sums of real numbers are rounded to a tenth.
        """
        if least <= 1:
            return self
        pairs = list(zip(self.positives, self.negatives, strict=True))
        unranked = np.zeros_like(self.right)
        right, wrong = (spread(row, unranked, least) for row in (self.right, self.wrong))
        if right.sum() + wrong.sum() < self.right.sum() + self.wrong.sum():
            right, wrong = unranked, unranked
        return ScoreHistograms(
            np.array([spread(own, others, least) for own, others in pairs]),
            np.array([spread(others, own, least) for own, others in pairs]),
            right,
            wrong,
            self.nll.round(_DECIMALS),
            self.brier.round(_DECIMALS),
        )


def softmax(logits: FloatArray) -> FloatArray:
    """Return probabilities (n, C)."""
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: FloatArray = exponents / exponents.sum(1, keepdims=True)
    return probabilities


def bins_of(scores: FloatArray) -> IntArray:
    """Return the bin of each probability, from 0 to ``BINS`` - 1."""
    return np.searchsorted(EDGES[1:-1], scores, side="right").astype(np.int64)


def _nll(logits: FloatArray, labels: IntArray) -> float:
    shifted = logits - logits.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]
    return float(np.minimum(losses, MAX_NLL).sum())


@dataclass(frozen=True)
class Ranking:
    """How well scores tell each class from the others; NaN for a class without positives or without negatives.

    Attributes:
        auroc, auroc_error: (C,) area under the ROC curve and DeLong's standard error; NaN too where either side has
            a single image.
        average_precision: (C,) area under the precision-recall curve, by steps.
        sensitivity, specificity: (C, BINS + 1), of "probability of at least EDGES[i]".
    """

    auroc: FloatArray
    auroc_error: FloatArray
    average_precision: FloatArray
    sensitivity: FloatArray
    specificity: FloatArray


def ranking(positives: IntArray, negatives: IntArray) -> Ranking:
    """Evaluate histograms (C, BINS)."""
    own, others = positives.sum(1, keepdims=True), negatives.sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        beaten = (np.cumsum(negatives, 1) - negatives / 2) / others
        beating = (np.cumsum(positives[:, ::-1], 1)[:, ::-1] - positives / 2) / own
        auroc = (positives * beaten).sum(1, keepdims=True) / own
        spread = (positives * (beaten - auroc) ** 2).sum(1, keepdims=True) / (own - 1) / own
        spread += (negatives * (beating - auroc) ** 2).sum(1, keepdims=True) / (others - 1) / others
        found = _from_above(positives)
        false = _from_above(negatives)
        steps = np.where(positives > 0, positives / own * (found / np.maximum(found + false, 1))[:, :-1], 0)
        precision = np.where((own > 0) & (others > 0), steps.sum(1, keepdims=True), np.nan)
        return Ranking(
            np.where(others > 0, auroc, np.nan)[:, 0],
            np.sqrt(np.where(others > 0, spread, np.nan))[:, 0],
            precision[:, 0],
            found / own,
            1 - false / others,
        )


def _from_above(counts: IntArray) -> IntArray:
    """Return how many images have a score of at least each edge, (C, BINS + 1)."""
    above = np.cumsum(counts[:, ::-1], 1)[:, ::-1]
    return np.concatenate([above, np.zeros((len(counts), 1), dtype=np.int64)], axis=1)


def best_thresholds(rates: Ranking) -> IntArray:
    """Return for each class the edge with the largest sum of sensitivity and specificity (Youden), (C,).

    -1 stands for a class without positives or negatives.
    """
    total = rates.sensitivity + rates.specificity
    known = np.asarray(~np.isnan(total).any(1))
    # Of equally good edges the middle one: it leaves the same margin to either side.
    equal = np.isclose(total, np.where(known, np.nan_to_num(total).max(1), 0)[:, None])
    middle = [int(np.flatnonzero(row)[row.sum() // 2]) if ok else -1 for row, ok in zip(equal, known, strict=True)]
    return np.array(middle, dtype=np.int64)


@dataclass(frozen=True)
class Reliability:
    """Predicted against observed frequencies.

    Attributes:
        counts: (RELIABILITY_BINS,) images by predicted probability, in steps of 0.1.
        predicted, observed: (RELIABILITY_BINS,) mean probability, and share of events; 0 where there is no image.
        error: expected calibration error: the mean distance of the two, weighted by the images; NaN without images.
    """

    counts: IntArray
    predicted: FloatArray
    observed: FloatArray
    error: float


def reliability(events: IntArray, others: IntArray) -> Reliability:
    """Compare histograms (BINS,) of scores with and without the event."""
    group = np.minimum((CENTRES * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
    both = events + others
    counts = np.bincount(group, weights=both, minlength=RELIABILITY_BINS)
    divisor = np.maximum(counts, 1)
    predicted = np.bincount(group, weights=both * CENTRES, minlength=RELIABILITY_BINS) / divisor
    observed = np.bincount(group, weights=events, minlength=RELIABILITY_BINS) / divisor
    total = counts.sum()
    error = float((counts * np.abs(predicted - observed)).sum() / total) if total else float("nan")
    return Reliability(counts.astype(np.int64), predicted, observed, error)


def best_temperature(nll: FloatArray) -> tuple[float, float]:
    """Return the temperature of the least likelihood loss, and the loss there.

    Between the temperatures of the sums stands the polynomial through all of them, of the logarithm of both.
    """
    known, losses = np.log(TEMPERATURES), np.log(np.maximum(nll, 1e-6 * max(1.0, float(nll.max()))))
    curve = np.polynomial.Polynomial.fit(known, losses, len(known) - 1)
    between = np.linspace(known[0], known[-1], 1001)
    best = int(curve(between).argmin())
    return float(np.exp(between[best])), float(np.exp(curve(between)[best]))


def hanley_mcneil(auroc: float, positives: int, negatives: int) -> float:
    """Return the standard error of an AUROC by its size alone (Hanley and McNeil, 1982).

    An AUROC of 0 or 1 is taken for one that is half an image of the smaller side away from it.
    """
    margin = 0.5 / min(positives, negatives)
    auroc = min(max(auroc, margin), 1 - margin)
    both, twice = auroc / (2 - auroc), 2 * auroc**2 / (1 + auroc)
    spread = auroc * (1 - auroc) + (positives - 1) * (both - auroc**2) + (negatives - 1) * (twice - auroc**2)
    return float(np.sqrt(max(0.0, spread) / (positives * negatives)))


def wilson(successes: float, trials: float) -> tuple[float, float]:
    """Return Wilson's interval of a rate; (0, 1) without trials."""
    if trials <= 0:
        return 0.0, 1.0
    rate, z2 = successes / trials, Z95**2
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 * np.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def logit_interval(rate: float, trials: float) -> tuple[float, float]:
    """Return the logit interval of an average precision that ``trials`` positives gave; (0, 1) without any."""
    if trials <= 0:
        return 0.0, 1.0
    inside = min(max(rate, 0.5 / trials), 1 - 0.5 / trials) if trials > 1 else 0.5
    middle, half = np.log(inside / (1 - inside)), Z95 / np.sqrt(trials * inside * (1 - inside))
    low, high = 1 / (1 + np.exp(-(middle - half))), 1 / (1 + np.exp(-(middle + half)))
    return min(float(low), rate), max(float(high), rate)


def normal_interval(value: float, error: float, most: float = 1.0) -> tuple[float, float]:
    """Return value +- z error, between 0 and ``most``."""
    return max(0.0, value - Z95 * error), min(most, value + Z95 * error)
