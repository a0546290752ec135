"""A site's statistics for the closed-form head: one pass over its training images with the received model."""

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.data.loading import Batches
from fedmr_med.network import Network
from fedmr_med.seeding import numpy_generator
from fedmr_med.site.training import to_device
from fedmr_med.statistics.head import HeadStatistics

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
