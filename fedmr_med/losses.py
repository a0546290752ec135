"""The losses of FedMR (Fan et al., TMLR 2023) and of its anchored variant, as pure tensor functions.

All handle all classes of a mini-batch in one vectorised pass, without a Python loop and without moving a
value from device to host. All compute in float32 or better even under mixed precision: the squared Gram
matrix overflows float16.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-8


def intra_class_loss(features: Tensor, labels: Tensor, *, scale: Literal["released", "paper"] = "released") -> Tensor:
    """Decorrelate the feature dimensions within each class, against dimensional collapse.

    Features are standardised per class; the loss is the squared Frobenius norm of the class correlation
    matrix M = Zh^T Zh. Because ||Zh^T Zh||_F = ||Zh Zh^T||_F, only one (B, B) Gram matrix is formed, masked
    by "same class", never a (d, d) one. Classes with a single sample take no part.

    The paper's Lemma 1, sum_i (lambda_i - 1)^2 = ||M||_F^2 - d over the eigenvalues of M, holds if the variance and M
    are divided by the same n. In neither scale they are: ``paper`` has n and n - 1, ``released`` does not divide M.

    Args:
        features: (B, d) features that feed the classifier.
        labels: (B,) integer classes.
        scale: ``released``: the authors' kernel: unbiased variance, mean squared off-diagonal entry of M,
            summed over classes and divided by the number of samples in them. ``paper``: the printed formula:
            biased variance, ||M / (n - 1)||_F^2, mean over classes.

    Returns:
        A scalar; zero, but connected to the graph, if no class has two samples.

    Raises:
        ValueError: the shapes do not fit or ``scale`` is unknown.
    """
    _check(features, labels)
    if scale not in ("released", "paper"):
        raise ValueError(f'scale must be "released" or "paper", not {scale!r}')
    with torch.autocast(features.device.type, enabled=False):
        features = _at_least_float32(features)
        same = (labels[:, None] == labels[None, :]).to(features.dtype)
        n = same.sum(1, keepdim=True)  # size of each sample's class, (B, 1)
        freedom = (n - 1).clamp(min=1)
        centred = torch.addmm(features, same / n, features, alpha=-1)
        variance = (same / (n if scale == "paper" else freedom)) @ centred.square()
        standardised = centred * (variance + EPSILON).rsqrt()
        # Summed over the samples of a class, the squares are ||M||_F^2 of that class. They are 0 for single samples.
        squares = ((standardised @ standardised.T) * same).square()
        in_pairs = (n > 1).to(features.dtype)
        if scale == "paper":
            classes = (in_pairs / n).sum()
            return (squares / freedom.square()).sum() / classes.clamp(min=1)
        diagonal = freedom * variance / (variance + EPSILON)  # of M: the sum of squares of a standardised dimension
        d = features.shape[1]
        off_diagonal = squares.sum() - (diagonal.square() / n).sum()
        return off_diagonal / max(d * (d - 1), 1) / in_pairs.sum().clamp(min=1)


def inter_class_loss(
    features: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    *,
    available: Tensor | None = None,
    negatives: Tensor | None = None,
    lite: int | None = None,
    generator: torch.Generator | None = None,
    margin: bool = True,
) -> Tensor:
    """Keep a margin to the global prototypes of the other classes, against space invasion.

    For a sample z of class i and every other class j: max(||z - g_i|| - ||z - g_j||, 0), averaged over the
    samples of class i and then over the pairs (i, j). A class without a prototype takes no part, neither as
    own class nor as other.

    Args:
        features: (B, d) features that feed the classifier.
        labels: (B,) integer classes.
        prototypes: (C, d) global class prototypes; rows of classes that are not available are ignored.
        available: (C,) bool, the classes that have a prototype; default all.
        negatives: (C,) bool, the classes used as "other"; default all available ones.
        lite: use only this many random samples of the batch (FedMR Lite); None uses all.
        generator: source of randomness for ``lite``.
        margin: False gives the paper's margin-free variant, the distance to the own prototype alone.

    Returns:
        A scalar; zero, but connected to the graph, where no pair takes part.

    Raises:
        ValueError: the shapes do not fit or ``lite`` is negative.
    """
    _check(features, labels)
    if prototypes.ndim != 2 or prototypes.shape[1] != features.shape[1]:
        raise ValueError(f"prototypes must be (C, {features.shape[1]}), not {tuple(prototypes.shape)}")
    classes = prototypes.shape[0]
    available = _mask("available", available, classes, features.device)
    others = available & _mask("negatives", negatives, classes, features.device)
    features, labels = _some(features, labels, lite, generator)
    with torch.autocast(features.device.type, enabled=False):
        features = _at_least_float32(features)
        anchors = prototypes.to(features).masked_fill(~available[:, None], 0)
        # The default matrix-product mode of cdist is off by 0.03 at d = 1280 in float32.
        distance = torch.cdist(features, anchors, compute_mode="donot_use_mm_for_euclid_dist")
        own = distance.gather(1, labels[:, None])
        terms = (own - distance).relu() if margin else own.expand_as(distance)
        pairs = available[labels, None] & others[None, :]
        pairs = pairs & (labels[:, None] != torch.arange(classes, device=labels.device)[None, :])
        n = (labels[:, None] == labels[None, :]).sum(1, keepdim=True)
        # Each pair of classes weighs 1 in all, shared by the samples of its own class.
        weights = pairs.to(features.dtype) / n
        return (terms * weights).sum() / weights.sum().clamp(min=EPSILON)


def anchor_loss(
    features: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    *,
    available: Tensor | None = None,
    radius: float | None = None,
    lite: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Pull every feature to the prototype of its class on a sphere of fixed radius.

    For a sample z of class i: || z / r - g_i / ||g_i|| ||, averaged over the samples of class i and then over the
    classes. Only the direction of a prototype counts: after a first round of local training the norms of the sites'
    features overshoot, and a pull to such prototypes drags all features up with them.

    Args:
        features: (B, d) features that feed the classifier.
        labels: (B,) integer classes.
        prototypes: (C, d) class prototypes; rows of classes that are not available are ignored.
        available: (C,) bool, the classes that have a prototype; default all.
        radius: r; None is sqrt(d) / 2.
        lite: use only this many random samples of the batch; None uses all.
        generator: source of randomness for ``lite``.

    Returns:
        A scalar; zero, but connected to the graph, where no class takes part.

    Raises:
        ValueError: the shapes do not fit, or ``lite`` is negative or ``radius`` not positive.
    """
    _check(features, labels)
    if prototypes.ndim != 2 or prototypes.shape[1] != features.shape[1]:
        raise ValueError(f"prototypes must be (C, {features.shape[1]}), not {tuple(prototypes.shape)}")
    if radius is not None and radius <= 0:
        raise ValueError(f"radius must be positive, not {radius}")
    available = _mask("available", available, prototypes.shape[0], features.device)
    features, labels = _some(features, labels, lite, generator)
    with torch.autocast(features.device.type, enabled=False):
        features = _at_least_float32(features)
        directions = F.normalize(prototypes.to(features).masked_fill(~available[:, None], 0), dim=1)
        scaled = features / (radius or features.shape[1] ** 0.5 / 2)
        distance: Tensor = torch.linalg.vector_norm(scaled - directions[labels], dim=1)
        n = (labels[:, None] == labels[None, :]).sum(1)
        weights = available[labels].to(features.dtype) / n
        loss: Tensor = (distance * weights).sum() / weights.sum().clamp(min=EPSILON)
        return loss


def replay_loss(logits: Tensor, classes: Tensor) -> Tensor:
    """Show the classifier the prototypes of classes that a site lacks, as if they were features of it.

    A classifier that never sees a class learns that everything is one of the others. A single point of the class, its
    global prototype, is enough to keep the decision plane where it belongs (section 3.2 of the paper). It is the mean
    cross-entropy, however many classes are missing: at a site that lacks most of them a sum would outweigh its images.

    Args:
        logits: (M, C) what the classifier says of the prototypes of M classes.
        classes: (M,) which classes they are.

    Returns:
        A scalar; zero, but connected to the graph, if no class is missing.
    """
    with torch.autocast(logits.device.type, enabled=False):
        return F.cross_entropy(_at_least_float32(logits), classes, reduction="sum") / max(len(classes), 1)


def _some(
    features: Tensor, labels: Tensor, count: int | None, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return ``count`` random rows of a batch; all of them for None."""
    if count is None:
        return features, labels
    if count < 0:
        raise ValueError(f"lite must not be negative, not {count}")
    chosen = torch.randperm(len(labels), generator=generator)[:count].to(features.device)
    return features[chosen], labels[chosen]


def _check(features: Tensor, labels: Tensor) -> None:
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"features must be (B, d) and labels (B,), not {tuple(features.shape)} and {tuple(labels.shape)}"
        )


def _mask(name: str, mask: Tensor | None, classes: int, device: torch.device) -> Tensor:
    if mask is None:
        return torch.ones(classes, dtype=torch.bool, device=device)
    if mask.shape != (classes,) or mask.dtype != torch.bool:
        raise ValueError(f"{name} must be a bool mask of shape ({classes},), not {mask.dtype} {tuple(mask.shape)}")
    return mask.to(device)


def _at_least_float32(features: Tensor) -> Tensor:
    return features if features.dtype in (torch.float32, torch.float64) else features.float()
