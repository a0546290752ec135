"""Pictures made from prototypes, and how like the site's images they are. All of them are made in one go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from fedmr_med.lab.audit.attacks import Floats, Ints
from fedmr_med.lab.audit.attacks.inversion import invert, likeness, similarity
from fedmr_med.lab.audit.visit import Visit


@dataclass(frozen=True)
class Wanted:
    """A picture to make.

    Attributes:
        prototype: (d,) what it is made from.
        inside, outside: which images were in the prototype, and which to compare with; numbers count the images of
            the train fold and then of the test fold.
    """

    prototype: Floats
    inside: Ints
    outside: Ints


def of_class(visit: Visit, label: int, prototype: Floats) -> Wanted:
    """Return the picture of a class: against its test images, or all of them where the site has none of the class."""
    train, test = visit.after.train.labels, visit.after.test.labels
    same = np.flatnonzero(test == label)
    outside = same if len(same) else np.arange(len(test))
    return Wanted(prototype, np.flatnonzero(train == label), len(train) + outside)


def likenesses(visit: Visit, wanted: Mapping[str, Sequence[Wanted]], *, steps: int) -> dict[str, list[float]]:
    """Return the likeness of each picture, from 0 to 1, by the names of ``wanted``; nothing for data of other kinds.

    Args:
        visit: the site and the network that the server has of it.
        wanted: the pictures to make.
        steps: of the optimiser.
    """
    first, asked = next(visit.images()), [want for group in wanted.values() for want in group]
    if first.ndim != 4 or not asked:
        return {}
    device = visit.hospital.device
    targets = torch.from_numpy(np.stack([want.prototype for want in asked])).float().to(device)
    inverted = invert(visit.features_of(), targets, (first.shape[1], first.shape[2], first.shape[3]), steps=steps)
    alike = np.concatenate([similarity(inverted, images.to(device)) for images in visit.images()], axis=1)
    scores = (likeness(row[want.inside], row[want.outside]) for row, want in zip(alike, asked, strict=True))
    return {name: list(islice(scores, len(group))) for name, group in wanted.items()}
