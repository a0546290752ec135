"""Numbers of images, read, subtracted or solved for; and releases that differ by one image, or in one class."""

from dataclasses import dataclass

import numpy as np

from fedmr_med.lab.audit.attacks import Floats, Ints, Release
from fedmr_med.privacy.policy import Sharing, SitePolicy
from fedmr_med.prototypes import ClassSums


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

    The gradient (C,) of the classifier's bias is the mean of the predicted probabilities minus the shares of the
    classes. With small features the ``bias`` that was sent alone makes the probabilities. ``counts`` are the (C,)
    images.
    """
    expected = np.exp(bias - bias.max()) / np.exp(bias - bias.max()).sum()
    guessed = counts.sum() * (expected - gradient)
    present = counts > 0
    return float((np.abs(guessed - counts) <= 1)[present].mean())


@dataclass(frozen=True)
class TwoRounds:
    """What the difference of two rounds tells about the image that came in between.

    Attributes:
        label: share of images whose class is told: the counts differ by one there, and nowhere else.
        feature: mean cosine of the difference of the class sums with the image's feature.
    """

    label: float
    feature: float


def two_rounds(release: Release, features: Floats, labels: Ints, images: Ints) -> TwoRounds:
    """Compare releases with and without each of some images, by one model: what a job with learning rate 0 gives."""
    right, cosines, both = [], [], release(features, labels)
    for image in images:
        without = np.arange(len(labels)) != image
        less = release(features[without], labels[without])
        if both is None or less is None:
            right.append(0.0)
            cosines.append(0.0)
            continue
        label = int(labels[image])
        moved = (both.counts - less.counts).numpy()
        right.append(float(moved[label] == 1 and np.count_nonzero(moved) == 1))
        cosines.append(max(0.0, _cosine((both.sums - less.sums)[label].numpy(), features[image])))
    return TwoRounds(float(np.mean(right)), float(np.mean(cosines))) if right else TwoRounds(0.0, 0.0)


def two_policies(released: ClassSums | None, policy: SitePolicy, names: tuple[str, ...], counts: Ints) -> float:
    """Return the share of classes whose count is withheld, and told by two jobs of which one asks for less.

    A job can make a site's policy stricter. One that leaves a class out moves it from those too small to count to
    those opted out, and the number of training images with it. ``counts`` are the (C,) images.
    """
    shared = np.zeros_like(counts) if released is None else released.counts.numpy()
    withheld = np.flatnonzero((counts > 0) & (shared != counts)).tolist()
    cosines = []
    for label in withheld:
        others = tuple(name for name in names if name != names[label])
        stricter = policy.restricted_by(Sharing(share_prototypes=others, min_class_count=1, share_metrics="per_class"))
        change = stricter.released_samples(counts, names) - policy.released_samples(counts, names)
        cosines.append(change == counts[label])
    return float(np.mean(cosines)) if cosines else 0.0


def one_of_each_class(labels: Ints, most: int) -> Ints:
    """Return up to ``most`` images, one of each class in turn, so that rare classes are among them."""
    order = np.random.default_rng(0).permutation(len(labels))
    rank = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        own = order[labels[order] == label]
        rank[own] = np.arange(len(own))
    chosen: Ints = order[np.argsort(rank[order], kind="stable")][:most]
    return chosen


def _cosine(a: Floats, b: Floats) -> float:
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0
