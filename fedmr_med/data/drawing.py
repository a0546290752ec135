"""Drawing images by class, with those of a patient together: test folds, and what is held out to choose on."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fedmr_med.data.base import Fold, SiteData, units
from fedmr_med.data.folds import FoldName
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.seeding import numpy_generator

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)


class Drawn(Generic[K, L]):
    """Groups that are drawn from all, class by class.

    Attributes:
        chosen: the groups drawn so far.

    Args:
        contents: number of images of each class, by group.
        chosen: the groups that are drawn from the beginning.
    """

    def __init__(self, contents: Mapping[K, Counter[L]], chosen: set[K]):
        self.chosen = chosen
        self._contents = contents
        self._left = Counter(label for key, content in contents.items() if key not in chosen for label in content)

    def fill(self, label: L, target: int, free: Sequence[K], *, everything: bool = False) -> None:
        """Draw groups as long as that brings a class nearer to a number of images; one at least, if there are two.

        A group that would take the last images of one of its classes stays.

        Args:
            label: the class.
            target: how many images of it are to be drawn in all.
            free: the groups to draw from, in the order in which they are looked at.
            everything: draw all of them, whatever is left.
        """
        have = sum(self._contents[key][label] for key in self.chosen)
        left = [key for key in free if key not in self.chosen]
        for key in left if target else ():
            more = self._contents[key][label]
            if everything or (abs(have + more - target) < abs(have - target) and self._leaves_some(key)):
                self._draw(key)
                have += more
        small = [key for key in sorted(left, key=lambda key: self._contents[key][label]) if self._leaves_some(key)]
        if target and not have and small:
            self._draw(small[0])

    def _draw(self, key: K) -> None:
        self.chosen.add(key)
        self._left.subtract(self._contents[key].keys())

    def _leaves_some(self, key: K) -> bool:
        """Whether another group of each class of a group is not drawn."""
        return all(self._left[label] > 1 for label in self._contents[key])


ENOUGH = SitePolicy().min_class_count
"""Images of a class in a fold, of which a prototype or a score may leave a site by default."""


@dataclass(frozen=True)
class Item:
    """An image with what is known about it; ``fold`` is None and ``group`` "" where that is not known."""

    image: str
    label: str
    group: str = ""
    fold: FoldName | None = None


def assign_folds(items: Sequence[Item], split: float, seed: int) -> list[FoldName]:
    """Return the fold of each item: the known one, or one that is drawn.

    An item without a group is a group of its own. A group with a known fold stays whole. Of each class, the rarest
    first, groups are drawn until the test fold has the share ``split`` of its images, or as many as a score needs to
    leave, if as many are left to train on. A class of two groups or more is in both folds.
    """
    keys = [item.group or f"\0{item.image}" for item in items]
    known: dict[str, FoldName] = {}
    contents: dict[str, Counter[str]] = {}
    for key, item in zip(keys, items, strict=True):
        contents.setdefault(key, Counter())[item.label] += 1
        if item.fold:
            known[key] = "train" if item.fold == "train" else known.get(key, "test")
    drawn = Drawn(contents, {key for key, fold in known.items() if fold == "test"})
    generator, total = np.random.default_rng(seed), sum(contents.values(), Counter())
    for label in sorted(total, key=lambda name: (total[name], name)):
        holders = sorted(key for key, content in contents.items() if content[label])
        free = [holders[i] for i in generator.permutation(len(holders)) if holders[i] not in known]
        drawn.fill(label, test_count(total[label], split), free, everything=split == 1)
    return [item.fold or ("test" if key in drawn.chosen else "train") for key, item in zip(keys, items, strict=True)]


def test_count(images: int, split: float) -> int:
    """Return how many images of a class are to be in the test fold."""
    share = round(split * images)
    least = ENOUGH if images >= 2 * ENOUGH else 1
    return images if split == 1 else max(share, least) if split else 0


def scarce_classes(items: Sequence[Item], folds: Sequence[FoldName]) -> tuple[str, ...]:
    """Return a sentence for each class of which too few images are in a fold for anything of it to leave."""
    counts: dict[str, Counter[str]] = {}
    for item, fold in zip(items, folds, strict=True):
        counts.setdefault(item.label, Counter())[fold] += 1
    sentences = []
    for label, content in sorted(counts.items()):
        if content["test"] < ENOUGH:
            sentences.append(
                f"{label}: {content['test']} test images, fewer than {ENOUGH} (min_class_count): no score of it leaves."
            )
        if content["train"] < ENOUGH:
            sentences.append(
                f"{label}: {content['train']} training images, fewer than {ENOUGH} (min_class_count): no prototype of "
                "it leaves."
            )
    return tuple(sentences)


IntArray = npt.NDArray[np.int64]


def set_aside(fold: Fold, share: float, seed: int = 0, *, smallest: int = 1) -> tuple[Fold, Fold]:
    """Return what stays of a train fold, and what is held out of it: ``share`` of each class, never all of one.

    The images of a patient are all held out, or none of them.

    Args:
        seed: draws the items. A hospital's images are drawn alike in all jobs: the sums of two draws tell what differs.
        smallest: fewest items of a class that are held out, and that stay beside them.
    """
    counts = Counter(fold.labels.tolist())
    targets = {label: min(round(share * count), count - 1) for label, count in sorted(counts.items())}
    held = draw(fold.labels, None if fold.groups is None else units(fold), targets, (seed, "validation"))
    own = units(fold)
    while few := [
        label
        for label, number in Counter(fold.labels[held].tolist()).items()
        if not smallest <= number <= counts[label] - smallest
    ]:
        held &= ~np.isin(own, own[np.isin(fold.labels, few)])  # whole patients
    return fold.subset(np.flatnonzero(~held)), fold.subset(np.flatnonzero(held))


def with_validation(site: SiteData, share: float, seed: int = 0, *, smallest: int = 1) -> SiteData:
    """Return a site's data with a share of the train fold set aside to choose with; see :func:`set_aside`."""
    train, aside = set_aside(site.train, share, seed, smallest=smallest)
    if site.plain is None:
        return replace(site, train=train, validation=aside)
    plain, aside = set_aside(site.plain, share, seed, smallest=smallest)
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
