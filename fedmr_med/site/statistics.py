"""A site's statistics for the closed-form head: one pass over its training images with the received model."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedmr_med.data.base import Fold, units
from fedmr_med.data.drawing import draw
from fedmr_med.data.loading import Batches
from fedmr_med.network import Network
from fedmr_med.privacy.mechanisms import Dominance
from fedmr_med.site.training import evaluated, features
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.fields import Values, add
from fedmr_med.statistics.head import HeadStatistics
from fedmr_med.statistics.shared import Samples, SharedStatistic, only_classes

Mask = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


def hold_out(fold: Fold, classes: Mask, *, fraction: float, smallest: int, site: str) -> Mask:
    """Return which samples (n,) are set aside to choose the shrinkage.

    A class takes part only if both of its parts are large enough to leave the site on their own: what is held out of
    a small class would be a few patients' features. The samples of a patient are in one part, those of one with several
    classes as far as these take part. A class has the same part set aside in all jobs, or none: the difference of two
    jobs' sums would tell single samples.

    Args:
        classes: (C,) the classes that are shared.
        fraction: share of a class to set aside.
        smallest: fewest samples of a class that may be shared.
        site: its name, which draws the samples.
    """
    targets = {label: round(fraction * total) for label, total in Counter(fold.labels.tolist()).items()}
    held = draw(fold.labels, None if fold.groups is None else units(fold), targets, (0, site, "held out"))
    for label, total in Counter(fold.labels.tolist()).items():
        rows = fold.labels == label
        if not classes[label] or not smallest <= int(held[rows].sum()) <= total - smallest:
            held[rows] = False
    return held


@torch.no_grad()
def head_statistics(
    network: Network,
    batches: Batches,
    num_classes: int,
    classes: Mask,
    held: Mask,
    *,
    directions: torch.Tensor | None = None,
    bound: "Bound | None" = None,
) -> tuple[HeadStatistics, HeadStatistics]:
    """Return the statistics of the kept and of the held-out samples, in one pass in evaluation mode.

    Args:
        batches: the training images, in the order of ``held``.
        classes: (C,) the classes that are shared; samples of others leave no trace.
        held: (n,) the samples set aside.
        directions: (p, d) that features are projected to, see
            :func:`fedmr_med.statistics.head.projection`; None keeps them.
        bound: keeps single images from standing out, in each of the two parts; None takes features as they are.
    """
    size = network.feature_size if directions is None else len(directions)
    mask, kept = torch.from_numpy(classes), HeadStatistics.zeros(num_classes, size)
    aside, start = kept, 0
    made: Iterable[tuple[Tensor, Tensor]] = (
        (f if directions is None else f.double() @ directions.T, y) for f, y in features(network, batches, "head")
    )
    if bound is not None:
        everything, labels = (torch.cat(part) for part in zip(*made, strict=True))
        for part in (~held, held):
            everything = bound(everything, labels, classes, part)
        made = [(everything, labels)]
    for batch, labels in made:
        rows = torch.from_numpy(held[start : start + len(labels)])
        kept = kept + HeadStatistics.from_features(batch[~rows], labels[~rows], num_classes, classes=mask)
        if bool(rows.any()):
            aside = aside + HeadStatistics.from_features(batch[rows], labels[rows], num_classes, classes=mask)
        start += len(labels)
    return kept, aside


@dataclass(frozen=True)
class Bound:
    """Keeps single images, or patients, from standing out in the sums of each class of a fold.

    Attributes:
        dominance: the rule.
        units: (n,) the patient of each image of the fold, or the image itself, as whole numbers.
    """

    dominance: Dominance
    units: npt.NDArray[np.int64]

    @classmethod
    def of(cls, dominance: Dominance, fold: Fold) -> "Bound":
        """Return the rule for a fold."""
        return cls(dominance, units(fold))

    def __call__(self, features: Tensor, labels: Tensor, classes: Mask, part: Mask | None = None) -> Tensor:
        """Return features (n, d) with labels (n,) of which no image stands out in a class, in float64.

        A feature that an image dominates in a class is constant in it: the value that half of the class have, such as
        the zero of a rectifier; else the mean of the classes in which it leaves, which tells nothing of this one.

        Args:
            features: of all images of the fold.
            labels: of all images.
            classes: (C,) those whose sums leave. Others stay as they are.
            part: (n,) the images that are summed up; None takes all.
        """
        result, chosen = features.double().clone(), np.ones(len(labels), np.bool_) if part is None else part
        total, number = torch.zeros(result.shape[1], dtype=torch.float64), torch.zeros(result.shape[1])
        passing: list[tuple[IntArray, Tensor]] = []
        for label in np.flatnonzero(classes):
            rows = np.flatnonzero((labels.numpy() == label) & chosen)
            units = np.unique(self.units[rows], return_inverse=True)[1]
            if len(units) == 0 or units.max() + 1 < self.dominance.fewest:
                continue  # min_class_count lets such a class leave, or does not
            mine = result[rows]
            mask = self.dominance.passes(mine, torch.from_numpy(units))
            middle = mine.median(0).values
            usual = (mine == middle).sum(0) >= len(rows) / 2
            result[rows] = torch.where(usual & ~mask, middle, mine)
            mask |= usual
            total, number = total + result[rows].sum(0) * mask, number + len(rows) * mask
            passing.append((rows, mask))
        for rows, mask in passing:
            result[rows] = torch.where(mask, result[rows], total / number.clamp(min=1))
        return result

    def enough(self, labels: npt.NDArray[np.int64], num_classes: int) -> Mask:
        """Return the mask (C,) of the classes without patients, or with enough of them for the rule."""
        pairs = np.unique(np.stack([labels, self.units]), axis=1)[0]
        units, images = (np.bincount(each, minlength=num_classes) for each in (pairs, labels))
        enough: Mask = (units >= self.dominance.fewest) | (units == images)
        return enough


def shared_values(
    network: Network, batches: Batches, statistics: Sequence[SharedStatistic], classes: Mask, sizes: Sizes
) -> dict[str, Values]:
    """Return what a site puts into statistics of other packages, by part, in one pass in evaluation mode.

    Args:
        statistics: are shown the samples of ``classes`` alone.
        classes: (C,) the classes that may leave; rows of the others are zero, whatever a statistic puts there.

    Raises:
        WireError: a statistic does not keep to its fields.
    """
    totals: dict[str, Values] = {}
    for found, answers, labels in evaluated(network, batches, "statistics"):
        rows = torch.from_numpy(classes)[labels]
        if not bool(rows.any()):
            continue
        seen, logits = (part.float().cpu()[rows].numpy() for part in (found, answers))
        samples = Samples(seen, logits, labels[rows].numpy())
        for statistic in statistics:
            layout, part = statistic.layout(sizes), statistic.part
            new = only_classes(layout.sent(statistic.values(samples, sizes)), layout, classes)
            totals[part] = add(totals[part], new) if part in totals else new
    return {
        statistic.part: statistic.layout(sizes).checked(dict(totals[statistic.part]), statistic.part)
        for statistic in statistics
        if statistic.part in totals
    }
