"""From a release to images that the attacker holds: which was trained on, and which is in a prototype."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedmr_med.lab.audit.attacks import Floats, Ints, prototypes
from fedmr_med.prototypes import ClassSums

_SAME = 1e-3  # distance, in units of how far features lie from their mean, below which two of them are the same
_DRAWS, _EXCHANGES = 50, 200


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

    The attacker holds features and labels of members and others, as many images of a class that were in the prototype
    as images that were not, so that chance is one half, which counts as 0. Classes without such others are left out.
    With few
    others the rate is far from one half by chance alone: it counts only if fewer than one in twenty exchanges of
        members and others give as much.
    """
    generator, pairs = np.random.default_rng(0), []
    for label, mean in prototypes(released).items():
        inside, outside = (features[labels == label] for features, labels in (members, others))
        if len(inside) and len(outside):
            pairs.append((_apart(mean, inside), _apart(mean, outside)))
    if not pairs:
        return 0.0
    rate = float(np.mean([_rate(*pair, generator) for pair in pairs]))
    as_good = 0
    for _ in range(_EXCHANGES):
        exchanged = (np.split(generator.permutation(np.concatenate(pair)), [len(pair[0])]) for pair in pairs)
        as_good += bool(np.mean([_rate(inside, outside, generator) for inside, outside in exchanged]) >= rate)
    return max(0.0, 2 * rate - 1) if as_good < _EXCHANGES / 20 else 0.0


def match_rate(mean: Floats, inside: Floats, outside: Floats, *, seed: int) -> float:
    """Return how often the nearest to a mean (d,), of equally many (n, d) and (m, d) features, is one inside."""
    return _rate(_apart(mean, inside), _apart(mean, outside), np.random.default_rng(seed))


def _apart(mean: Floats, features: Floats) -> Floats:
    return np.asarray(np.linalg.norm(features - mean, axis=1))


def _rate(inside: Floats, outside: Floats, generator: np.random.Generator) -> float:
    """Return how often the smallest of as many distances of either kind is one of ``inside``, over random draws."""
    size = min(len(inside), len(outside))
    # A random order for each draw, of which the first ones are taken.
    nearest = [
        np.take(part, generator.random((_DRAWS, len(part))).argsort(1)[:, :size]).min(1) for part in (inside, outside)
    ]
    return float((nearest[0] < nearest[1]).mean())


@dataclass(frozen=True)
class Guess:
    """The scores of an attack on membership: (n,) and (m,) of images that were and were not trained on."""

    attack: str
    defence: str
    members: Floats
    others: Floats

    @property
    def area(self) -> float:
        """Area under the ROC curve: how often a member has the higher score; 0.5 where there is nobody to compare."""
        n, m = len(self.members), len(self.others)
        if not n or not m:
            return 0.5
        ranks = stats.rankdata(np.concatenate([self.members, self.others]))
        return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))

    @property
    def advantage(self) -> float:
        """How much better than a coin: 2 AUC - 1, and 0 where the scores mislead."""
        return max(0.0, 2 * self.area - 1)


def nearness(released: ClassSums | None, features: Floats, labels: Ints) -> Floats:
    """Return the negative distance of images to the prototype of their class; images of other classes have none."""
    means = prototypes(released)
    known = np.isin(labels, list(means))
    if not known.any():
        return np.zeros(0)
    centres = np.stack([means[int(label)] for label in labels[known]])
    apart: Floats = -np.linalg.norm(features[known] - centres, axis=1)
    return apart
