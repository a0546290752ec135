"""Whose statistics count in a closed-form head, and with how many images.

A head is solved from sums, so one site that tells of enough images decides it, and a scatter matrix of its choice
blinds it. Two rules hold a site to what the others have:

**Weight.** In a class a site counts with at most three times the median of the others that have it; where fewer than
two others have it, with at most three times the median of all their classes.

**Agreement.** Each site is held against the head of the others, in the directions by which that head tells classes
apart. It is left out if its features spread far more widely there than is usual, if a class lies far on the wrong side
of another, if most classes lie apart in other directions, or if the head of all sites serves the held-out images of the
others worse with it than without. The worst site goes first and the rest are compared anew, as one bad site makes
others look bad. At most a minority of the compared sites is left out; those with features far too long are out before.

What only one site has can be compared with nothing: a class that nobody else shares is what that site says it is.
Nobody can be told apart in a secure sum, nor under noise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedmr_med.server.robust import ENOUGH, HEAVIEST, relative
from fedmr_med.statistics.head import HeadStatistics, LinearHead, class_means, expected_error, solve

UNLIKE = 0.95
"""How far what tells a site's classes apart may differ from the others', in the median pair. Honest sites of the demo
have up to 0.32 and of Fed-ISIC2019 up to 0.84; exchanged labels have 1.01 and more. The bound was chosen on these."""

WRONG_SIDE = 0.75
"""How far a class may lie on the wrong side of another, as a share of what they are apart at the others."""

COST = 0.1
"""How much a site may add to the error that is expected on held-out images of the others. At 0.05, an honest
hospital of Fed-ISIC2019 was left out once another one was."""

SHRINKAGE = 0.1
"""Of the heads that sites are compared by."""

_TINY = 1e-300

Parts = tuple[HeadStatistics, HeadStatistics]
"""Statistics of the kept and of the held-out images of a site."""

Limits = npt.NDArray[np.int64]
"""(C,) how many images of each class a site counts with at most."""


@dataclass(frozen=True)
class Selection:
    """Who counts.

    Attributes:
        sites: those whose statistics count.
        limits: of those that count with fewer images than they tell of.
        left_out: the others, with the reason.
    """

    sites: tuple[str, ...]
    limits: Mapping[str, Limits] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def select(
    counts: Mapping[str, npt.NDArray[np.int64]], read: Callable[[str, Limits | None], Parts], bound: float
) -> Selection:
    """Compare the sites and leave out who does not agree with the others.

    Args:
        counts: (C,) images that each site tells of, by site.
        read: returns the statistics of a site, held to its limits.
        bound: how many times as widely as is usual features may spread, ``federation.max_deviation``.
    """
    sites, left_out = sorted(counts), dict[str, str]()
    most = (len(sites) - 1) // 2
    while True:
        limits = _limits(sites, counts)
        odd = _worst(sites, partial(_held_to, read, limits), bound) if len(left_out) < most else {}
        if not odd:
            return Selection(tuple(sites), limits, left_out)
        left_out |= odd
        sites = [site for site in sites if site not in odd]


def _held_to(read: Callable[[str, Limits | None], Parts], limits: Mapping[str, Limits], site: str) -> Parts:
    return read(site, limits.get(site))


def class_limits(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many images (n, C) of a class each site counts with at most, of those (n, C) that sites tell of."""
    limits = counts.copy()
    for site, label in np.argwhere(counts):
        others = np.delete(counts, site, axis=0)
        alike = others[others[:, label] > 0, label]
        usual = alike if len(alike) >= ENOUGH - 1 else others[others > 0]
        if len(others) >= ENOUGH - 1 and len(usual):
            limits[site, label] = min(counts[site, label], int(HEAVIEST * np.median(usual)))
    return limits


def _limits(sites: Sequence[str], counts: Mapping[str, npt.NDArray[np.int64]]) -> dict[str, Limits]:
    """Return the limits of the sites that have to count with fewer images."""
    if not sites:
        return {}
    limits = class_limits(np.stack([counts[site] for site in sites]))
    return {site: most for site, most in zip(sites, limits, strict=True) if (most < counts[site]).any()}


def _worst(sites: Sequence[str], read: Callable[[str], Parts], bound: float) -> dict[str, str]:
    """Return the site that agrees least with the others, with the reason; nothing if all of them agree."""
    if len(sites) < ENOUGH:
        return {}
    kept, held_out = read(sites[0])
    for site in sites[1:]:
        more = read(site)
        kept, held_out = kept + more[0], held_out + more[1]
    whole = solve(kept, SHRINKAGE)
    measures = [_measured(read(site), kept, held_out, whole) for site in sites]
    spreads, sides, unlike, costs = zip(*measures, strict=True)
    for values, limit, reason in (
        (relative(spreads), bound, "its features spread {:.3g} times as widely between the classes as is usual"),
        (sides, WRONG_SIDE, "a class lies on the wrong side of another, by {:.3g} times what they are apart"),
        (unlike, UNLIKE, "what tells its classes apart differs by {:.0%} from the others'; are its labels right?"),
        (costs, COST, "with it the error that is expected on the others' held-out images is {:.0%} higher"),
    ):
        worst = int(np.argmax(values))
        if values[worst] > limit:
            return {sites[worst]: "left out as an outlier: " + reason.format(values[worst])}
    return {}


def _measured(
    own: Parts, kept: HeadStatistics, held_out: HeadStatistics, whole: LinearHead
) -> tuple[float, float, float, float]:
    """Return a site's spread, how far a class is on the wrong side, how unlike all are, and the cost; 0 if unknown."""
    others = kept - own[0]
    if not bool((others.sums.counts > 0).any()):
        return 0.0, 0.0, 0.0, 0.0
    head = solve(others, SHRINKAGE)
    return (
        _spread(own[0], others, head),
        *_placing(own[0] + own[1], others, head),
        _cost(own[1], held_out, whole, head),
    )


def _spread(own: HeadStatistics, others: HeadStatistics, head: LinearHead) -> float:
    """Return how many times the variance of the others a site has at most, where their head tells classes apart."""
    if not (own.freedom > 0 and others.freedom > 0):
        return 0.0
    directions = _pairs(head.weight[others.sums.counts > 0])
    mine, theirs = (((directions @ part.scatter) * directions).sum(1) / part.freedom for part in (own, others))
    ratios = mine[theirs > 0] / theirs[theirs > 0]
    return float(ratios.max()) if len(ratios) else 0.0


def _placing(own: HeadStatistics, others: HeadStatistics, head: LinearHead) -> tuple[float, float]:
    """Return how far a class of a site lies on the wrong side of another, and how unlike the others' all pairs are."""
    classes = (others.sums.counts > 0) & (own.sums.counts > 0)
    if int(classes.sum()) < 2:
        return 0.0, 0.0
    directions = _pairs(head.weight[classes])
    mine, theirs = ((directions * _pairs(class_means(part.sums)[classes])).sum(1) for part in (own, others))
    apart = mine / theirs.clamp(min=_TINY)  # 1 where they are as far apart as at the others, 0 where they are one
    return float(-apart.min()), 1 - float(apart.median())


def _cost(own: HeadStatistics, held_out: HeadStatistics, whole: LinearHead, head: LinearHead) -> float:
    """Return how much a site adds to the error that is expected on the held-out images of the others."""
    others = held_out - own
    if not others.freedom > 0:
        return 0.0
    # A class that only this site has makes the task harder for honest reasons.
    present = head.weight.any(1)
    return expected_error(whole, others, present) - expected_error(head, others, present)


def _pairs(rows: Tensor) -> Tensor:
    """Return the difference (k (k - 1) / 2, d) of each pair of rows (k, d)."""
    first, second = torch.triu_indices(len(rows), len(rows), 1)
    return rows[first] - rows[second]
