"""What the sites of a job add up secretly: the fields of each release, the same for every site.

A release is named after the model that it is made with, by server and sites alike, so that nobody can ask for the same
statistics under two names. What a site does not share is zero.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.errors import WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.clinical import BINS, TEMPERATURES, IntArray
from fedmr_med.evaluation.metrics import Scores, scores
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure.fixed import BITS, Field, Layout
from fedmr_med.secure.messages import MOST_SITES
from fedmr_med.statistics.head import HeadStatistics, symmetric, triangle_of
from fedmr_med.wire.histograms import decode_histograms, encode_histograms
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE
from fedmr_med.wire.messages import TrainTask

COUNTS, SUMS, CONFUSION, HISTOGRAMS, MOMENTS = "counts", "sums", "confusion", "histograms", "moments"
KEPT, HELD_OUT = "kept", "held_out"
MODELS = "models/"
Values = Mapping[str, npt.NDArray[Any]]


def release_name(kind: str, task: TrainTask) -> str:
    """Return the name of the release that a task leads to."""
    found = hashlib.blake2b(digest_size=8)
    for name in sorted(task.model):
        found.update(name.encode() + task.model[name].tobytes())
    return f"{kind}-{task.round}-{found.hexdigest()}"


@dataclass(frozen=True)
class SumForms:
    """The forms of all secure sums of a job.

    Attributes:
        num_classes: C.
        feature_size: length of a class sum.
        statistics_size: length of a class sum for a closed-form head, which may be of projected features.
        models: fields of the sums of trained models, where they are summed too.
    """

    num_classes: int
    feature_size: int
    statistics_size: int
    models: Mapping[str, Field]

    def layout(self, release: str) -> Layout:
        """Return the fields of a release by its name.

        Raises:
            WireError: there is no such kind of release.
        """
        kind = release.partition("-")[0]
        if kind == TRAIN:
            models = {MODELS + name: field for name, field in self.models.items()}
            return Layout({**self._sums(self.feature_size), **self._scores(), **models})
        if kind == VALIDATE:
            return Layout(self._scores())
        if kind == HEAD:
            size = self.statistics_size
            part = {**self._sums(size), MOMENTS: Field((size * (size + 1) // 2,), BITS)}
            return Layout({f"{which}_{name}": field for which in (KEPT, HELD_OUT) for name, field in part.items()})
        raise WireError("there is no such release", code="wire.form", key="release")

    @property
    def sizes(self) -> frozenset[int]:
        """The lengths of all vectors."""
        return frozenset(self.layout(kind).size for kind in (TRAIN, VALIDATE, HEAD))

    def _sums(self, size: int) -> dict[str, Field]:
        return {COUNTS: Field((self.num_classes,)), SUMS: Field((self.num_classes, size), BITS)}

    def _scores(self) -> dict[str, Field]:
        classes = self.num_classes
        counted = {"positives": (classes, BINS), "negatives": (classes, BINS), "right": (BINS,), "wrong": (BINS,)}
        fields = {CONFUSION: Field((classes, classes))}
        fields |= {f"{HISTOGRAMS}_{name}": Field(shape) for name, shape in counted.items()}
        return fields | {
            f"{HISTOGRAMS}_nll": Field((len(TEMPERATURES),), BITS),
            f"{HISTOGRAMS}_brier": Field((2,), BITS),
        }


@dataclass(frozen=True)
class Total:
    """What a secure sum gave.

    Attributes:
        values: the totals by field.
        sites: whose vectors are in it.
        dropped: the sites that had keys, and are not in it.
        bytes_up, bytes_down: of all its messages.
        seconds: wall time.
    """

    values: Values
    sites: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0


def train_values(sums: ClassSums | None, score: Scores | None) -> dict[str, npt.NDArray[Any]]:
    """Return what a site puts into the sum of a training round."""
    return ({} if sums is None else _sums(sums)) | validate_values(score)


def model_values(sums: Values) -> dict[str, npt.NDArray[Any]]:
    """Return what a site puts in of its trained model, given the sums of it alone."""
    return {MODELS + name: array for name, array in sums.items()}


def model_totals(values: Values) -> dict[str, npt.NDArray[Any]]:
    """Return the sums of the trained models of all sites."""
    return {name.removeprefix(MODELS): array for name, array in values.items() if name.startswith(MODELS)}


def validate_values(score: Scores | None) -> dict[str, npt.NDArray[Any]]:
    """Return what a site puts into a sum of scores: confusion matrix and histograms, where its policy lets them out."""
    if score is None or score.confusion is None:
        return {}
    arrays = {} if score.histograms is None else encode_histograms(score.histograms)
    return {CONFUSION: score.confusion} | {f"{HISTOGRAMS}_{name}": array for name, array in arrays.items()}


def head_values(kept: HeadStatistics | None, held_out: HeadStatistics | None) -> dict[str, npt.NDArray[Any]]:
    """Return what a site puts into the sum for a closed-form head: uncentred moments, which add up."""
    values: dict[str, npt.NDArray[Any]] = {}
    for which, part in ((KEPT, kept), (HELD_OUT, held_out)):
        if part is None:
            continue
        moments = part.scatter + _between(part.scattered)
        fields = {**_sums(part.sums), MOMENTS: triangle_of(moments).numpy()}
        values |= {f"{which}_{name}": array for name, array in fields.items()}
    return values


def noisy_head_values(sums: ClassSums, moments: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[Any]]:
    """Return what a site puts into the sum for a closed-form head where noise protects it: nothing is held out."""
    return {f"{KEPT}_{name}": array for name, array in {**_sums(sums), MOMENTS: moments}.items()}


def noisy_class_sums(values: Values, least: int, prefix: str = "") -> ClassSums:
    """Return the class sums of a total with noise; a class whose noisy count is below ``least`` has none."""
    counts = values[prefix + COUNTS]
    known = torch.from_numpy(counts >= least)
    return ClassSums(torch.from_numpy(values[prefix + SUMS].copy()), torch.from_numpy(counts.copy())).only(known)


def noisy_head_statistics(values: Values, least: int, noise: float) -> tuple[HeadStatistics, HeadStatistics]:
    """Return the statistics of a total with noise, of which nothing is held out.

    Args:
        values: the total.
        least: the noisy count from which on a class counts.
        noise: standard deviation of the noise on each entry of the second moments.
    """
    sums = noisy_class_sums(values, least, f"{KEPT}_")
    return noisy_statistics(sums, values[f"{KEPT}_{MOMENTS}"], noise), HeadStatistics.zeros(*sums.sums.shape)


def noisy_statistics(sums: ClassSums, moments: npt.NDArray[Any], noise: float) -> HeadStatistics:
    """Return statistics with noise, no variance of their scatter below what noise alone gives.

    A symmetric matrix (d, d) of independent noise has eigenvalues up to 2 sqrt(d) times its standard deviation (the
    semicircle law). Directions below it tell nothing, and a head would divide by them.

    Args:
        sums: class sums and counts of (C, d).
        moments: the upper triangle of the uncentred second moments (d, d).
        noise: standard deviation of the noise on each entry of the second moments.
    """
    size = sums.sums.shape[1]
    eigenvalues, vectors = torch.linalg.eigh(symmetric(torch.from_numpy(moments), size) - _between(sums))
    return HeadStatistics(sums, sums, (vectors * eigenvalues.clamp(min=2 * noise * size**0.5)) @ vectors.T)


def class_sums(values: Values, prefix: str = "") -> ClassSums:
    """Return the class sums of a total.

    Raises:
        WireError: no samples add up to it: somebody put something else in.
    """
    counts, sums = values[prefix + COUNTS], values[prefix + SUMS]
    if (counts < 0).any() or (counts > MOST_SITES * MAX_IMAGES).any():
        raise WireError("the total has counts that no sites have", code="wire.counts", key="prototypes")
    if (sums[counts == 0] != 0).any():
        raise WireError("the total has a class sum without a count", code="wire.counts", key="prototypes")
    return ClassSums(torch.from_numpy(sums.copy()), torch.from_numpy(counts.copy()))


def total_scores(values: Values) -> Scores | None:
    """Return the pooled scores of a total; None if nobody shares a matrix.

    Raises:
        WireError: a count is negative or out of proportion.
    """
    confusion: IntArray = values[CONFUSION]
    if (confusion < 0).any() or confusion.sum() > MOST_SITES * MAX_IMAGES:
        raise WireError("the total has a confusion matrix that no sites have", code="wire.counts", key="confusion")
    if not confusion.any():
        return None
    prefix = f"{HISTOGRAMS}_"
    arrays = {name.removeprefix(prefix): array for name, array in values.items() if name.startswith(prefix)}
    try:
        histograms = decode_histograms(arrays, confusion)
    except WireError:
        histograms = None  # some site shares its matrix, but has too few images for histograms
    return replace(scores(confusion), histograms=histograms)


def head_statistics(values: Values) -> tuple[HeadStatistics, HeadStatistics]:
    """Return the statistics of the kept and of the held-out samples of all sites.

    Raises:
        WireError: no samples add up to them.
    """
    kept, held_out = (_statistics(values, f"{which}_") for which in (KEPT, HELD_OUT))
    return kept, held_out


def _statistics(values: Values, prefix: str) -> HeadStatistics:
    sums = class_sums(values, prefix)
    size = sums.sums.shape[1]
    moments = symmetric(torch.from_numpy(values[prefix + MOMENTS]), size)
    scatter = moments - _between(sums)
    # Rounding can leave a direction without variance slightly negative.
    diagonal = scatter.diagonal()
    if bool((diagonal < -1e-3 * (1 + moments.diagonal().abs())).any()):
        raise WireError(f"the total has {prefix}moments that no features have", code="wire.range", key="statistics")
    diagonal.clamp_(min=0)
    return HeadStatistics(sums, sums, scatter)


def _sums(sums: ClassSums) -> dict[str, npt.NDArray[Any]]:
    return {COUNTS: sums.counts.numpy(), SUMS: sums.sums.numpy()}


def _between(sums: ClassSums) -> torch.Tensor:
    """Return sum over the classes of S S^T / n."""
    scaled = sums.sums / sums.counts.clamp(min=1).sqrt()[:, None]
    return scaled.T @ scaled
