"""From a prototype to the images it was made of, by comparing it with images that the attacker holds."""

import numpy as np

from fedmr_med.audit.attacks import Floats, Ints, prototypes
from fedmr_med.prototypes import ClassSums

_SAME = 1e-3  # distance, in units of how far features lie from their mean, below which two of them are the same
_DRAWS = 50


def is_one_image(released: ClassSums | None, features: Floats) -> float:
    """Return the share of released prototypes that are the features of one training image."""
    means = prototypes(released)
    if not means:
        return 0.0
    spread = float(np.median(np.linalg.norm(features - features.mean(0), axis=1)))
    apart = [np.linalg.norm(features - mean, axis=1).min() for mean in means.values()]
    return float(np.mean(np.array(apart) < _SAME * spread))


def nearest_match(released: ClassSums | None, members: tuple[Floats, Ints], others: tuple[Floats, Ints]) -> float:
    """Return how often the candidate nearest to a prototype is a training image of the site, above chance.

    The attacker holds as many images of the class that were in the prototype as images that were not, so that chance
    is one half, which counts as 0. Classes without such others are left out.

    Args:
        released: the release.
        members, others: features and labels of images that were and were not in it.
    """
    rates = []
    for label, mean in prototypes(released).items():
        inside, outside = (features[labels == label] for features, labels in (members, others))
        if len(inside) and len(outside):
            rates.append(match_rate(mean, inside, outside, seed=label))
    return max(0.0, 2 * float(np.mean(rates)) - 1) if rates else 0.0


def match_rate(mean: Floats, inside: Floats, outside: Floats, *, seed: int) -> float:
    """Return how often the nearest of equally many images of both kinds is one that is inside, over random draws.

    Args:
        mean: (d,) the prototype.
        inside, outside: (n, d) and (m, d) features.
        seed: of the draws.
    """
    generator, size = np.random.default_rng(seed), min(len(inside), len(outside))
    apart = [np.linalg.norm(features - mean, axis=1) for features in (inside, outside)]
    nearest = np.array([
        [generator.choice(distances, size, replace=False).min() for distances in apart] for _ in range(_DRAWS)
    ])  # fmt: skip
    return float((nearest[:, 0] < nearest[:, 1]).mean())
