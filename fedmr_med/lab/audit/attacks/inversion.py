"""From a prototype back to a picture: pixels are changed until the network's feature is the prototype."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmr_med.lab.audit.attacks import Floats

FeaturesOf = Callable[[Tensor], Tensor]
"""Features (n, d) of images (n, channels, height, width)."""

STEPS = 200
_LR, _SMOOTH = 0.1, 0.2
_RANGE = 2.5  # of normalised pixels
_COARSE = 16  # edge, in pixels, at which pictures are compared: an attacker is content with a blurred one
_DRAWS = 50


def invert(features_of: FeaturesOf, targets: Tensor, shape: tuple[int, int, int], *, steps: int = STEPS) -> Tensor:
    """Return pictures (k, *shape) whose features come close to ``targets`` (k, d).

    Adam on the pixels from a grey start; the loss is the squared distance relative to the target's length, and total
    variation, which prefers smooth pictures. The pictures do not depend on one another. The network is the server's, in
    evaluation mode; its parameters need no gradient. ``shape`` is channels, height and width.
    """
    generator = torch.Generator().manual_seed(0)
    pixels = (0.05 * torch.randn(1, *shape, generator=generator)).repeat(len(targets), 1, 1, 1).to(targets.device)
    pixels.requires_grad_(True)
    optimizer = torch.optim.Adam([pixels], lr=_LR)
    lengths = targets.square().sum(1).clamp(min=1e-12)
    for _ in range(steps):
        apart = (features_of(pixels) - targets).square().sum(1) / lengths
        rough = (pixels.diff(dim=2).abs().mean((1, 2, 3)) + pixels.diff(dim=3).abs().mean((1, 2, 3))) / 2
        optimizer.zero_grad()
        (apart + _SMOOTH * rough).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            pixels.clamp_(-_RANGE, _RANGE)
    return pixels.detach()


def similarity(pictures: Tensor, images: Tensor) -> Floats:
    """Return the correlation of each picture (k, c, h, w) with each image (n, c, h, w), (k, n), both made coarse."""
    a, b = (_standard(batch) for batch in (pictures, images))
    cosines: Floats = (a @ b.T).cpu().numpy()
    return cosines


def likeness(inside: Floats, outside: Floats) -> float:
    """Return how far a picture goes from what it shares with any image of the class to a copy of one it was made of.

    0: the best of the images that the prototype was made of is no more like it than the best of equally many others;
    1: it is a copy. The correlations (n,) and (m,) are with images that were, and were not, in the prototype.
    """
    size = min(len(inside), len(outside))
    if not size:
        return 0.0
    generator = np.random.default_rng(0)
    draws = [[generator.choice(part, size, replace=False).max() for part in (inside, outside)] for _ in range(_DRAWS)]
    best, chance = (float(mean) for mean in np.mean(draws, axis=0))
    return max(0.0, (best - chance) / max(1 - chance, 1e-6))


def _standard(batch: Tensor) -> Tensor:
    coarse = F.adaptive_avg_pool2d(batch.float(), min(_COARSE, *batch.shape[2:])).flatten(1)
    centred = coarse - coarse.mean(1, keepdim=True)
    return F.normalize(centred, dim=1)
