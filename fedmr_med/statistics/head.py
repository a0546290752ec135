"""A linear classifier in closed form: linear discriminant analysis from additive statistics of features.

Where sites hold different classes, federated training hurts the classifier far more than the features. This head is
made from what the sites' samples add up to: class sums and counts, and one within-class scatter matrix. It is the head
that pooled data would give, whoever holds which class, and takes one exchange.

With class means mu_c and the pooled within-class covariance S, shrunk to (1 - a) S + a tr(S)/d I, the score of a
feature z for class c is z^T S^-1 mu_c - mu_c^T S^-1 mu_c / 2 + log prior_c: one linear layer.

Related: FedNCM (Legate et al., 2023), Fed3R (Fani et al., 2024), FedCGS (Guan et al., 2025), CCVR (Luo et al., 2021).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedmr_med.prototypes import ClassSums
from fedmr_med.seeding import numpy_generator

SHRINKAGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6)
"""What :func:`choose_shrinkage` tries by default."""

ABSENT = -6e4
"""Bias of a class without statistics: below any score, so its probability is exactly 0. It is finite in float16, and a
hundred of them are within the norm that a site accepts of a received array by default."""

Prior = Literal["uniform", "counts"]


class LinearHead(NamedTuple):
    """A linear layer: weight (C, d) and bias (C,), float64."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class HeadStatistics:
    """What a set of samples contributes to the head.

    Adding two of them gives the statistics of the union of their samples, so neither the number of sites nor who holds
    what matters. A class that may not be shared must be left out when the scatter is made (``classes`` of
    :meth:`from_features`): a scatter matrix cannot be taken apart by class afterwards.

    Attributes:
        sums: class sums and counts of all samples.
        scattered: class sums and counts of the samples behind ``scatter``; of none where only sums are shared.
        scatter: (d, d) float64, sum of (z - m_y)(z - m_y)^T with m the class means of ``scattered``.
    """

    sums: ClassSums
    scattered: ClassSums
    scatter: Tensor

    def __post_init__(self) -> None:
        classes, size = self.sums.sums.shape
        if self.scattered.sums.shape != (classes, size) or self.scatter.shape != (size, size):
            raise ValueError(
                f"sums and scattered must be (C, d) and scatter (d, d), not {(classes, size)}, "
                f"{tuple(self.scattered.sums.shape)} and {tuple(self.scatter.shape)}"
            )

    @classmethod
    def zeros(cls, num_classes: int, feature_size: int) -> "HeadStatistics":
        """Return the statistics of no samples."""
        none = ClassSums.zeros(num_classes, feature_size)
        return cls(none, none, torch.zeros(feature_size, feature_size, dtype=torch.float64))

    @classmethod
    def from_sums(cls, sums: ClassSums) -> "HeadStatistics":
        """Return the statistics of a site that shares class sums but no scatter."""
        size = sums.sums.shape[1]
        scatter = torch.zeros(size, size, dtype=torch.float64)
        return cls(sums, ClassSums.zeros(*sums.sums.shape), scatter)

    @classmethod
    def from_features(
        cls, features: Tensor, labels: Tensor, num_classes: int, *, classes: Tensor | None = None
    ) -> "HeadStatistics":
        """Make the statistics of some samples, in float64 on the CPU.

        Args:
            features: (B, d), not necessarily all of a site: batches add up.
            labels: (B,) integer classes.
            classes: (C,) bool, the classes that may be shared; samples of others leave no trace. None takes all.

        Raises:
            ValueError: the shapes do not fit.
        """
        if features.ndim != 2 or labels.shape != features.shape[:1]:
            raise ValueError(
                f"features must be (B, d) and labels (B,), not {tuple(features.shape)} and {tuple(labels.shape)}"
            )
        features, labels = features.detach().cpu().double(), labels.cpu()
        if classes is not None:
            if classes.shape != (num_classes,) or classes.dtype != torch.bool:
                raise ValueError(f"classes must be a bool mask of shape ({num_classes},), not {tuple(classes.shape)}")
            permitted = classes.cpu()[labels]
            features, labels = features[permitted], labels[permitted]
        sums = ClassSums.from_features(features, labels, num_classes)
        centred = features - class_means(sums)[labels]
        return cls(sums, sums, centred.T @ centred)

    def __add__(self, other: "HeadStatistics") -> "HeadStatistics":
        """Return the statistics of both sets of samples together (Chan, Golub & LeVeque, 1979)."""
        a, b = self.scattered, other.scattered
        return HeadStatistics(self.sums + other.sums, a + b, self.scatter + other.scatter + _apart(a, b))

    def __sub__(self, other: "HeadStatistics") -> "HeadStatistics":
        """Return the statistics of the samples without those of ``other``, which must be among them."""
        sums, rest = (
            ClassSums(whole.sums - part.sums, whole.counts - part.counts)
            for whole, part in ((self.sums, other.sums), (self.scattered, other.scattered))
        )
        return HeadStatistics(sums, rest, self.scatter - other.scatter - _apart(rest, other.scattered))

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the scatter: its samples less its classes."""
        return int(self.scattered.counts.sum()) - int((self.scattered.counts > 0).sum())


def triangle_of(matrix: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix (d, d), row by row: what of it travels."""
    upper = torch.triu_indices(*matrix.shape)
    return matrix[upper[0], upper[1]]


def between(sums: ClassSums) -> Tensor:
    """Return sum over the classes of S S^T / n: what uncentred second moments (d, d) have beyond the scatter."""
    # The root of an int64 tensor is float32, which would cost half of the digits of the scatter.
    scaled = sums.sums / sums.counts.double().clamp(min=1).sqrt()[:, None]
    return scaled.T @ scaled


def symmetric(triangle: Tensor, size: int) -> Tensor:
    """Return the matrix (d, d) of an upper triangle, float64."""
    upper = torch.triu_indices(size, size)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix[upper[0], upper[1]] = triangle.double()
    return matrix + matrix.triu(1).T


def projection(seed: int, feature_size: int, size: int | None) -> Tensor | None:
    """Return (size, feature_size) orthonormal directions, the same for all sites of a job; None keeps all features.

    A head of projected features is a head of the features: its weight times these directions.
    """
    if size is None or size >= feature_size:
        return None
    drawn = numpy_generator(seed, "head projection").standard_normal((feature_size, size))
    columns: Tensor = torch.linalg.qr(torch.from_numpy(drawn))[0]
    return columns.T.contiguous()


def solve(statistics: HeadStatistics, shrinkage: float, prior: Prior = "uniform") -> LinearHead:
    """Return the head of linear discriminant analysis.

    A class without samples gets weight 0 and bias :data:`ABSENT`. Where there is no scatter (nobody shares it, or no
    class has two different samples) the identity takes its place: the head of the nearest class mean.

    Args:
        statistics: of all sites.
        shrinkage: a in (1 - a) S + a tr(S)/d I. With 0 a singular S is inverted where it is not 0 (pseudo-inverse).
        prior: ``uniform`` for balanced accuracy, ``counts`` for accuracy on data like the training data.

    Raises:
        ValueError: ``shrinkage`` is not between 0 and 1, ``prior`` is unknown, or there are no samples at all.
    """
    return _Spectrum.of(statistics).head(shrinkage, prior)


def choose_shrinkage(
    statistics: HeadStatistics,
    held_out: HeadStatistics,
    *,
    candidates: Sequence[float] = SHRINKAGES,
    prior: Prior = "uniform",
) -> float:
    """Return the shrinkage that serves held-out samples best, of which only the statistics are known.

    Sites put a part of their *training* samples aside and send the statistics of both parts; the final head is
    solved from their sum. No feature leaves, and the test set is not looked at.

    A class is taken to be Gaussian about its held-out mean with the common held-out covariance H. With
    m_cj = (w_c - w_j)^T mean_c + b_c - b_j and v_cj = (w_c - w_j)^T H (w_c - w_j), the probability that j beats c is
    Phi(-m_cj / sqrt(v_cj)). Summed over j (at most 1 for a class) and averaged over c with the prior, this bounds the
    error. It looks at the directions that tell classes apart.

    Args:
        statistics: of the samples the head is solved from.
        held_out: of the samples set aside.
        candidates: shrinkages to choose from; of equal ones the first wins.

    Raises:
        ValueError: there are no candidates, a class is held out whole, or one part has no scatter.
    """
    if not candidates:
        raise ValueError("there are no shrinkages to choose from")
    if not statistics.freedom > 0 or not held_out.freedom > 0:
        raise ValueError("shrinkage can only be chosen with the scatter of both parts")
    if bool(((held_out.sums.counts > 0) & (statistics.sums.counts == 0)).any()):
        raise ValueError("held-out samples of a class that is not in the head")
    spectrum = _Spectrum.of(statistics)
    present = spectrum.counts > 0
    return min(candidates, key=lambda a: expected_error(spectrum.head(a, prior), held_out, present, prior))


@dataclass(frozen=True)
class _Spectrum:
    """The statistics with their covariance diagonalised once, for any number of shrinkages.

    Attributes:
        means: (C, d).
        counts: (C,).
        values: (d,) eigenvalues of the pooled within-class covariance; ones where there is no scatter.
        vectors: (d, d) its eigenvectors, as columns.
    """

    means: Tensor
    counts: Tensor
    values: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, statistics: HeadStatistics) -> "_Spectrum":
        if not bool((statistics.sums.counts > 0).any()):
            raise ValueError("a head cannot be made from no samples")
        size = len(statistics.scatter)
        values, vectors = torch.ones(size, dtype=torch.float64), torch.eye(size, dtype=torch.float64)
        if statistics.freedom > 0 and bool(statistics.scatter.any()):
            values, vectors = _diagonalized(statistics.scatter / statistics.freedom)
        return cls(class_means(statistics.sums), statistics.sums.counts, values.clamp(min=0), vectors)

    def inverse(self, shrinkage: float) -> Tensor:
        """Return the (d,) eigenvalues of the (pseudo-)inverse of the shrunk covariance."""
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"shrinkage must be between 0 and 1, not {shrinkage}")
        values = (1 - shrinkage) * self.values + shrinkage * self.values.mean()
        zero = values <= values.max() * len(values) * torch.finfo(values.dtype).eps
        return torch.where(zero, 0, 1 / values.masked_fill(zero, 1))

    def head(self, shrinkage: float, prior: Prior) -> LinearHead:
        weight = ((self.means @ self.vectors) * self.inverse(shrinkage)) @ self.vectors.T
        bias = -(weight * self.means).sum(1) / 2 + self.log_prior(prior)
        present = self.counts > 0
        return LinearHead(weight * present[:, None], torch.where(present, bias, ABSENT))

    def log_prior(self, prior: Prior) -> Tensor:
        """Return the (C,) logarithms of the prior; 0 for classes without samples."""
        if prior not in ("uniform", "counts"):
            raise ValueError(f'prior must be "uniform" or "counts", not {prior!r}')
        present = self.counts > 0
        weights = self.counts.double() if prior == "counts" else present.double()
        return torch.where(present, weights / weights.sum(), 1).log()


def _diagonalized(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues (d,) of a covariance (d, d), in any order, and its eigenvectors (d, d) as columns.

    LAPACK's solver can fail where most features are dead, that is exactly or nearly constant within the classes. They
    are eigenvectors of value 0 to within its own error, so it gets the live ones alone.

    Raises:
        torch.linalg.LinAlgError: the live part has no decomposition either.
    """
    size = torch.arange(len(covariance))
    reach = covariance.abs().amax(0)
    live = size[reach > reach.max() * torch.finfo(covariance.dtype).eps]
    values, vectors = torch.zeros_like(reach), torch.eye(len(size), dtype=covariance.dtype)
    values[live], vectors[live[:, None], live] = torch.linalg.eigh(covariance[live[:, None], live])
    return values, vectors


def expected_error(head: LinearHead, held_out: HeadStatistics, present: Tensor, prior: Prior = "uniform") -> float:
    """Bound the error of a head on held-out samples by their moments; see :func:`choose_shrinkage`.

    Args:
        held_out: of the samples set aside; they have a scatter.
        present: (C,) bool, the classes among which it chooses.
    """
    weight, bias = head
    covariance = held_out.scatter / held_out.freedom
    means = class_means(held_out.sums)
    scores = means @ weight.T + bias
    margin = scores.diagonal()[:, None] - scores
    products = weight @ covariance @ weight.T
    norms = products.diagonal()
    variance = (norms[:, None] + norms[None, :] - 2 * products).clamp(min=torch.finfo(torch.float64).tiny)
    beaten = torch.special.ndtr(-margin / variance.sqrt())
    rivals = present[None, :] & ~torch.eye(len(bias), dtype=torch.bool)
    errors = torch.where(rivals, beaten, 0).sum(1).clamp(max=1)
    counts = torch.where(present, held_out.sums.counts, 0).double()
    weights = counts if prior == "counts" else (counts > 0).double()
    return float((errors * weights).sum() / weights.sum())


def _apart(a: ClassSums, b: ClassSums) -> Tensor:
    """Return what the scatter about common class means has beyond those of two sets; 0 where one has no samples."""
    apart = class_means(a) - class_means(b)
    weight = a.counts.double() * b.counts / (a.counts + b.counts).clamp(min=1)
    return (apart * weight[:, None]).T @ apart


def class_means(sums: ClassSums) -> Tensor:
    """Return the (C, d) class means; 0 for classes without samples."""
    return sums.sums / sums.counts.clamp(min=1)[:, None]
