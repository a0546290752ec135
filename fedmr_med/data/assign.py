"""Drawing a test fold: by count, class by class, with the images of a patient together."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmr_med.data.drawing import Drawn
from fedmr_med.data.folds import FoldName
from fedmr_med.privacy.policy import SitePolicy

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
