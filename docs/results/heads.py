"""Heads on frozen Lite0 features of Fed-ISIC2019, centres 1 to 5, cross-validated by lesion in five parts.

``python docs/results/heads.py PREPARED 64`` holds each head against the toolkit's: shrinkage from the toolkit's list by
the bound on held-out moments. *Counted*: by balanced accuracy on held-out lesions, which would take a second exchange.
*Equal*: every class weighs the same in the pooled covariance, which needs all class counts before the scatter.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fedmr_med.data import transforms
from fedmr_med.data.flamby_isic import (
    LESIONS_FILE,
    PREPARED_FOLDER,
    SPLIT_FILE,
    dealt_by_lesion,
    read_lesions,
    read_split,
)
from fedmr_med.evaluation.metrics import confusion_matrix
from fedmr_med.evaluation.seeds import Spread
from fedmr_med.lab.bench.paired import half_width
from fedmr_med.models.efficientnet import EfficientNetLite0
from fedmr_med.statistics.head import SHRINKAGES, HeadStatistics, choose_shrinkage, class_means, solve

PARTS, CLASSES, HELD_OUT = 5, 8, 0.15
WIDER = (0.01, 0.03, 0.1, 0.3, 0.6, 0.75, 0.85, 0.95)
root, size = Path(sys.argv[1]), int(sys.argv[2])
centers = read_split(root / SPLIT_FILE, read_lesions(root / LESIONS_FILE))
rows = [row for center in centers[1:] for row in center]
labels = torch.tensor([row.label for row in rows])
names = np.array([row.group or row.image for row in rows])


@torch.no_grad()
def made() -> torch.Tensor:
    """Return the features (n, d) of all images."""
    network = EfficientNetLite0(CLASSES, 3, pretrained="imagenet", image_size=size).eval()
    transform, edge = transforms.build("isic", train=False, image_size=size), transforms.edge_for(size)
    parts = []
    for start in range(0, len(rows), 64):
        pixels = []
        for row in rows[start : start + 64]:
            with Image.open(root / PREPARED_FOLDER / row.image) as image:
                width, height = (round(length * edge / min(image.size)) for length in image.size)
                pixels.append(transform(np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)), 0))
        parts.append(network(torch.from_numpy(np.stack(pixels)))[0].double())
    return torch.cat(parts)


features = made()


def plain(chosen: np.ndarray) -> HeadStatistics:
    """Return the statistics of some images."""
    return HeadStatistics.from_features(features[chosen], labels[chosen], CLASSES)


def equal(chosen: np.ndarray) -> HeadStatistics:
    """Return statistics in which every class weighs the same in the scatter."""
    whole = plain(chosen)
    centred = features[chosen] - class_means(whole.sums)[labels[chosen]]
    freedom = (whole.sums.counts - 1).clamp(min=1)[labels[chosen]]
    scatter = (centred / freedom[:, None]).T @ centred / int((whole.sums.counts > 1).sum())
    return replace(whole, scatter=scatter * whole.freedom)


def score(statistics: HeadStatistics, shrinkage: float, chosen: np.ndarray) -> float:
    """Return the balanced accuracy of a head on some images."""
    head = solve(statistics, shrinkage)
    predicted = (features[chosen] @ head.weight.T + head.bias).argmax(1)
    confusion = confusion_matrix(labels[chosen].numpy(), predicted.numpy(), CLASSES)
    present = confusion.sum(1) > 0
    return float((confusion.diagonal()[present] / confusion.sum(1)[present]).mean())


def counted(kept: np.ndarray, held: np.ndarray, kind: Callable[[np.ndarray], HeadStatistics]) -> float:
    """Return the shrinkage with the best balanced accuracy on held-out images."""
    statistics = kind(kept)
    return max(WIDER, key=lambda shrinkage: score(statistics, shrinkage, held))


def bound(kept: np.ndarray, held: np.ndarray, candidates: Sequence[float]) -> float:
    """Return the shrinkage that the toolkit chooses."""
    return choose_shrinkage(plain(kept), plain(held), candidates=candidates)


if __name__ == "__main__":
    scores: dict[str, list[float]] = {}
    for part in range(PARTS):
        tested = np.array([row.fold == "test" for row in dealt_by_lesion(rows, part, PARTS)])
        trained, test = np.flatnonzero(~tested), np.flatnonzero(tested)
        lesions = np.unique(names[trained])
        aside = np.random.default_rng(part).permutation(lesions)[: round(HELD_OUT * len(lesions))]
        out = np.isin(names[trained], aside)
        kept, held = trained[~out], trained[out]
        heads = {
            "the toolkit's": (plain, bound(kept, held, SHRINKAGES)),
            "shrinkages up to .95": (plain, bound(kept, held, WIDER)),
            "counted": (plain, counted(kept, held, plain)),
            "equal, counted": (equal, counted(kept, held, equal)),
            **{f"equal, shrinkage {shrinkage}": (equal, shrinkage) for shrinkage in (0.3, 0.6, 0.85)},
        }
        for name, (kind, shrinkage) in heads.items():
            scores.setdefault(name, []).append(score(kind(trained), shrinkage, test))
    reference, *_ = scores.values()
    for name, values in scores.items():
        gaps = [100 * (value - other) for value, other in zip(values, reference, strict=True)]
        sys.stdout.write(f"{name:24} {Spread.of(values).text(3)}   {np.mean(gaps):+.1f} ± {half_width(gaps):.1f}\n")
