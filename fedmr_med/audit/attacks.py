"""What somebody who sees a site's releases can read from them. Each attack gives a success from 0, nothing, to 1."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.prototypes import ClassSums

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]
Release = Callable[[Floats, Ints], ClassSums | None]
"""What leaves of features (n, d) and labels (n,)."""

_SAME = 1e-3  # relative distance below which two feature vectors are the same


def counts_read(released: ClassSums | None, counts: Ints) -> float:
    """Return the share of the site's classes whose exact number of images is in the release."""
    present = counts > 0
    if released is None or not present.any():
        return 0.0
    return float((released.counts.numpy() == counts)[present].mean())


def withheld_by_subtraction(released: ClassSums | None, samples: int, counts: Ints) -> float:
    """Return 1 if the number of images minus the shared counts is the exact number of those that are withheld."""
    shared = np.zeros_like(counts) if released is None else released.counts.numpy()
    withheld = int(counts[shared != counts].sum())
    return float(withheld > 0 and samples - int(shared.sum()) == withheld)


def rows_read(confusion: Ints | None, counts: Ints) -> float:
    """Return the share of classes whose exact number of test images is a row sum of the confusion matrix."""
    present = counts > 0
    if confusion is None or not present.any():
        return 0.0
    return float((confusion.sum(1) == counts)[present].mean())


def histogram_from_bias(gradient: Floats, bias: Floats, counts: Ints) -> float:
    """Return the share of classes whose number of images a step on one batch of all of them gives, to within one.

    The gradient of the classifier's bias is the mean of the predicted probabilities minus the shares of the classes.

    Args:
        gradient: (C,) of the bias.
        bias: (C,) that the server sent; with small features it alone makes the probabilities.
        counts: (C,) images.
    """
    expected = np.exp(bias - bias.max()) / np.exp(bias - bias.max()).sum()
    found = counts.sum() * (expected - gradient)
    present = counts > 0
    return float((np.abs(found - counts) <= 1)[present].mean())


def differencing(release: Release, features: Floats, labels: Ints, images: Ints) -> float:
    """Return how well two releases, one of which lacks an image, give that image's feature: the mean cosine.

    Args:
        release: the defence.
        features, labels: of all images.
        images: which ones are left out, one at a time.
    """
    found = []
    for image in images:
        without = np.arange(len(labels)) != image
        both, less = release(features, labels), release(features[without], labels[without])
        if both is None or less is None:
            found.append(0.0)
            continue
        change = (both.sums - less.sums)[int(labels[image])].numpy()
        norms = float(np.linalg.norm(change) * np.linalg.norm(features[image]))
        found.append(max(0.0, float(change @ features[image]) / norms) if norms else 0.0)
    return float(np.mean(found)) if found else 0.0


def nearest_image(released: ClassSums | None, features: Floats) -> float:
    """Return the share of released prototypes that are the features of one training image."""
    means = prototypes(released)
    if means is None:
        return 0.0
    apart = [np.linalg.norm(features - mean, axis=1).min() / max(float(np.linalg.norm(mean)), 1e-12) for mean in means]
    return float(np.mean(np.array(apart) < _SAME))


def membership_by_prototype(
    released: ClassSums | None, members: tuple[Floats, Ints], others: tuple[Floats, Ints]
) -> float:
    """Return the advantage of telling training images from others by their distance to the prototype of their class.

    Args:
        released: the release.
        members, others: features and labels of images that were and were not in it.
    """
    if released is None:
        return 0.0
    known = released.counts.numpy() > 0
    means = (released.sums / released.counts.clamp(min=1)[:, None]).numpy()
    apart = []
    for features, labels in (members, others):
        rows = known[labels]
        apart.append(-np.linalg.norm(features[rows] - means[labels[rows]], axis=1))
    return advantage(*apart)


def advantage(members: Floats, others: Floats) -> float:
    """Return how much better than a coin scores tell members from others: 2 AUC - 1, and 0 where they mislead."""
    if not len(members) or not len(others):
        return 0.0
    order = np.concatenate([members, others]).argsort(kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)
    area = (ranks[: len(members)].sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others))
    return max(0.0, float(2 * area - 1))


def prototypes(released: ClassSums | None) -> Floats | None:
    """Return the means of the classes in a release, (c, d)."""
    if released is None or not bool((released.counts > 0).any()):
        return None
    known = released.counts > 0
    means: torch.Tensor = released.sums[known] / released.counts[known][:, None]
    return means.numpy()
