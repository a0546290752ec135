"""Was this image trained on? A score for each image, higher for those that look it."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedmr_med.lab.audit.attacks import Floats, Ints, prototypes
from fedmr_med.prototypes import ClassSums


@dataclass(frozen=True)
class Guess:
    """The scores of an attack on membership.

    Attributes:
        attack, defence: which.
        members, others: (n,) and (m,) scores of images that were and were not trained on.
    """

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
    """Return the negative distance of images to the prototype of their class; images of other classes have none.

    Args:
        released: the release.
        features, labels: (n, d) and (n,) of the images.
    """
    means = prototypes(released)
    known = np.isin(labels, list(means))
    if not known.any():
        return np.zeros(0)
    centres = np.stack([means[int(label)] for label in labels[known]])
    apart: Floats = -np.linalg.norm(features[known] - centres, axis=1)
    return apart
