"""A site's statistics for the closed-form head: one pass over its training images with the received model."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.data.loading import Batches
from fedmr_med.network import Network
from fedmr_med.seeding import numpy_generator
from fedmr_med.site.training import to_device
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.fields import Values, add
from fedmr_med.statistics.head import HeadStatistics
from fedmr_med.statistics.shared import Samples, SharedStatistic, only_classes

Mask = npt.NDArray[np.bool_]


def hold_out(
    labels: npt.NDArray[np.int64], classes: Mask, *, fraction: float, smallest: int, stream: tuple[int | str, ...]
) -> Mask:
    """Return which samples (n,) are set aside to choose the shrinkage.

    A class takes part only if both of its parts are large enough to leave the site on their own: what is held out of
    a small class would be a few patients' features.

    Args:
        labels: (n,) classes of the samples.
        classes: (C,) the classes that are shared.
        fraction: share of a class to set aside.
        smallest: fewest samples of a class that may be shared.
        stream: draws the samples.
    """
    held = np.zeros(len(labels), dtype=np.bool_)
    for label in np.flatnonzero(classes):
        rows = np.flatnonzero(labels == label)
        count = round(fraction * len(rows))
        if smallest <= count <= len(rows) - smallest:
            held[numpy_generator(*stream, "held out", int(label)).permutation(rows)[:count]] = True
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
) -> tuple[HeadStatistics, HeadStatistics]:
    """Return the statistics of the kept and of the held-out samples, in one pass in evaluation mode.

    Args:
        network: makes the features.
        batches: the training images, in the order of ``held``.
        num_classes: C.
        classes: (C,) the classes that are shared; samples of others leave no trace.
        held: (n,) the samples set aside.
        directions: (p, d) that features are projected to, see
            :func:`fedmr_med.statistics.head.projection`; None keeps them.
    """
    network.eval()
    device = next(network.parameters()).device
    size = network.feature_size if directions is None else len(directions)
    mask, kept = torch.from_numpy(classes), HeadStatistics.zeros(num_classes, size)
    aside, start = kept, 0
    for images, labels in batches.epoch("head", shuffle=False):
        features = network(to_device(images, device))[0].cpu()
        if directions is not None:
            features = features.double() @ directions.T
        rows = torch.from_numpy(held[start : start + len(labels)])
        kept = kept + HeadStatistics.from_features(features[~rows], labels[~rows], num_classes, classes=mask)
        if bool(rows.any()):
            aside = aside + HeadStatistics.from_features(features[rows], labels[rows], num_classes, classes=mask)
        start += len(labels)
    return kept, aside


@torch.no_grad()
def shared_values(
    network: Network, batches: Batches, statistics: Sequence[SharedStatistic], classes: Mask, sizes: Sizes
) -> dict[str, Values]:
    """Return what a site puts into statistics of other packages, by part, in one pass in evaluation mode.

    Args:
        network: makes features and logits.
        batches: the images.
        statistics: are shown the samples of ``classes`` alone.
        classes: (C,) the classes that may leave; rows of the others are zero, whatever a statistic puts there.
        sizes: of the job's statistics.

    Raises:
        WireError: a statistic does not keep to its fields.
    """
    network.eval()
    device = next(network.parameters()).device
    totals: dict[str, Values] = {}
    for images, labels in batches.epoch("statistics", shuffle=False):
        rows = torch.from_numpy(classes)[labels]
        if not bool(rows.any()):
            continue
        features, logits = (part.float().cpu()[rows].numpy() for part in network(to_device(images, device)))
        samples = Samples(features, logits, labels[rows].numpy())
        for statistic in statistics:
            layout, part = statistic.layout(sizes), statistic.part
            new = only_classes(layout.sent(statistic.values(samples, sizes)), layout, classes)
            totals[part] = add(totals[part], new) if part in totals else new
    return {
        statistic.part: statistic.layout(sizes).checked(dict(totals[statistic.part]), statistic.part)
        for statistic in statistics
        if statistic.part in totals
    }
