"""Pictures made from prototypes, and what a prototype gives away by the number of its images.

Pictures are compared with the site's images; all of them are made in one go. The sizes are those of random parts of the
site's most frequent class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from fedmr_med.lab.audit.attacks import Floats, Ints
from fedmr_med.lab.audit.attacks.images import Guess, match_rate
from fedmr_med.lab.audit.attacks.inversion import invert, likeness, similarity
from fedmr_med.lab.audit.visit import Visit
from fedmr_med.privacy.findings import OfSize

SIZES = (1, 2, 5, 11, 25, 50)
_DRAWS, _PICTURES = 200, 2


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

    ``steps`` are the optimiser's, on the network that the server has of the site.
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


Part = tuple[Ints, Ints]
"""Some images of a class, and as many others of it, by their numbers in the train fold."""


def parts(visit: Visit) -> dict[int, list[Part]]:
    """Return random parts by their size, as far as the most frequent class has images for them."""
    own = np.flatnonzero(visit.after.train.labels == int(visit.counts.argmax()))
    generator = np.random.default_rng(0)
    drawn: dict[int, list[Part]] = {}
    for size in SIZES:
        if 2 * size <= len(own):
            orders = [generator.permutation(own) for _ in range(_DRAWS)]
            drawn[size] = [(order[:size], order[size : 2 * size]) for order in orders]
    return drawn


def pictures(visit: Visit, drawn: dict[int, list[Part]]) -> list[Wanted]:
    """Return the pictures to make, a few of each size, in the order of the sizes."""
    features = visit.after.train.features
    chosen = [part for parts in drawn.values() for part in parts[:_PICTURES]]
    return [Wanted(features[inside].mean(0), inside, outside) for inside, outside in chosen]


def by_size(visit: Visit, drawn: dict[int, list[Part]], likeness: list[float] | None) -> tuple[OfSize, ...]:
    """Attack the prototypes of all parts; ``likeness`` is of the pictures, None where there are none."""
    found = []
    for position, (size, of_size) in enumerate(drawn.items()):
        figures = []  # the rate of nearest matches, and the area of telling the images apart by their distance
        for seed, part in enumerate(of_size):
            inside, outside = (visit.after.train.features[numbers] for numbers in part)
            mean = inside.mean(0)
            near = [-np.linalg.norm(rows - mean, axis=1) for rows in (inside, outside)]
            area = Guess("prototype", "none", *near).area
            figures.append((match_rate(mean, inside, outside, seed=seed), area))
        nearest, membership = np.maximum(0.0, 2 * np.mean(figures, axis=0) - 1).tolist()
        looked = None if likeness is None else likeness[_PICTURES * position : _PICTURES * (position + 1)]
        inversion = None if looked is None else float(np.mean(looked))
        found.append(OfSize(images=size, nearest=nearest, membership=membership, inversion=inversion))
    return tuple(found)
