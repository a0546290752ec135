"""Training data set aside to choose settings on, in place of a test set that is to be looked at once."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedmr_med.data.base import Fold, SiteData, SubsetFold, units
from fedmr_med.data.drawing import Drawn
from fedmr_med.seeding import numpy_generator

IntArray = npt.NDArray[np.int64]


def set_aside(fold: Fold, share: float, seed: int) -> tuple[SubsetFold, SubsetFold]:
    """Return what stays of a train fold, and what is held out of it: ``share`` of each class, never all of one.

    The images of a patient are all held out, or none of them.

    Args:
        fold: the training data of one site.
        share: between 0 and 1.
        seed: the job's; it draws the items.
    """
    counts = Counter(fold.labels.tolist())
    targets = {label: min(round(share * count), count - 1) for label, count in sorted(counts.items())}
    held = draw(fold.labels, None if fold.groups is None else units(fold), targets, (seed, "validation"))
    return SubsetFold(fold, np.flatnonzero(~held)), SubsetFold(fold, np.flatnonzero(held))


def with_validation(site: SiteData, share: float, seed: int) -> SiteData:
    """Return a site's data with a share of the train fold set aside to choose with; see :func:`set_aside`."""
    train, aside = set_aside(site.train, share, seed)
    if site.plain is None:
        return replace(site, train=train, validation=aside)
    plain, aside = set_aside(site.plain, share, seed)
    return replace(site, train=train, plain=plain, validation=aside)


def draw(
    labels: IntArray, units: IntArray | None, targets: Mapping[int, int], stream: tuple[int | str, ...]
) -> npt.NDArray[np.bool_]:
    """Return which items (n,) are drawn: of each class a number of items, or as near to it as whole units come.

    Args:
        labels: (n,) classes of the items.
        units: (n,) the unit of each item; None draws items one by one.
        targets: how many items of each class; the draw of a class does not depend on others where there are no units.
        stream: draws them.
    """
    drawn = np.zeros(len(labels), dtype=np.bool_)
    if units is None:
        for label, count in targets.items():
            rows = np.flatnonzero(labels == label)
            drawn[numpy_generator(*stream, label).permutation(rows)[:count]] = True
        return drawn
    contents: dict[int, Counter[int]] = {}
    for unit, label in zip(units.tolist(), labels.tolist(), strict=True):
        contents.setdefault(unit, Counter())[label] += 1
    chosen = Drawn(contents, set[int]())
    for label in sorted(targets, key=lambda label: (int((labels == label).sum()), label)):
        holders = np.unique(units[labels == label])
        chosen.fill(label, targets[label], numpy_generator(*stream, label).permutation(holders).tolist())
    return np.isin(units, list(chosen.chosen))
