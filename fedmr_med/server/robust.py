"""Robust aggregation: how far one site can move the global state, whatever it sends.

Every rule turns the valid replies of a round into the replies that count, so it serves all methods alike.

**Outliers are left out**, by default. The distance of each site's update from the mean of the others' is compared with
the median of all such distances: a site that is ``federation.max_deviation`` times as far away does not count in the
round, and the record of the round names it. Where sites hold different classes their updates point in different
directions, but all of them do, so the measure stays fair. The same holds for BatchNorm statistics, for what a method
adds, and for the length of the prototypes. A round without outliers is, bit for bit, a round without the rule.

**Wrong labels** give an update of the usual length and, where sites hold different classes, of no unusual direction.
They show in the prototypes: a class lies elsewhere among the classes of such a site than at the others. So a site
whose classes agree with the others' less than half as well as is usual is left out too. Only classes that another
site shares as well are compared; a site that has a class to itself, or shares none, is not judged by it. Between few
classes agreement is a matter of chance, so less of it is asked: of two, only that they do not lie the other way round.

**Direction.** An update that is turned round points away from the others. The cosine of a site is the median of its
cosines with the others' updates, which a minority cannot move far. Where updates point the same way as a rule, a site
below a quarter of the usual cosine is left out. A narrower bound would leave out honest sites: one that holds all
classes, among others that hold two, has half of the usual cosine.

**Length and weight.** An update counts with at most one and a half times the median length, and a site with at most
three times the median number of images of the others: in the model, and in all classes of the prototypes together.
Both leave most rounds as they are.

**The rules of** ``federation.robust`` go further, for everybody and in every round, and cost something without an
attack. ``clip`` scales each update down to the median length. ``median`` and ``trimmed_mean`` replace each reply's
weights, statistics and payload by one coordinate-wise estimate: sites then count alike, whatever number of images they
tell of, and what only one site knows is lost.

All of this needs three replies: between two, nobody can tell who is wrong.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.arrays import Arrays
from fedmr_med.config import FederationConfig
from fedmr_med.evaluation.history import History
from fedmr_med.prototypes import ClassSums
from fedmr_med.server.changes import Changes
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.model_sums import vectors
from fedmr_med.wire.messages import SiteReply

ENOUGH = 3
"""Fewer replies have no majority."""

SLACK = 3
"""How much wider the bound is for what differs between honest sites more than updates do: statistics of their images,
features of networks that
each site trained by itself, and what a method adds, such as a number of steps."""

USUAL, HALF = 0.5, 0.5
"""Sites are judged by their prototypes once their agreement has this median, and left out below about this share of it,
see :func:`share_asked`."""

SAME_WAY, QUARTER = 0.2, 0.25
"""Sites are judged by the direction of their updates where their cosine has this median, and left out below this share
of it."""

MOST_COMPARED = 256
"""Sites whose updates all others are held against, so that time grows with the number of sites."""

LONGEST = 1.5
"""How many times the median length an update counts with at most; honest sites of the demo reach 1.3."""

HEAVIEST = 3
"""How many times the median of the others a site's images count at most."""

_TINY = 1e-300


def needs_all_replies(federation: FederationConfig) -> bool:
    """Whether a round's replies have to be held until the last one is there, to be compared."""
    return not federation.sums_models and (federation.robust != "none" or federation.max_deviation is not None)


class Comparison:
    """Finds the replies of a round that are too far from the others.

    It holds no reply: :meth:`note` measures each when it comes, and :meth:`outliers` goes twice over all of them.
    """

    def __init__(self, state: GlobalState, federation: FederationConfig):
        self._bound = None if federation.sums_models else federation.max_deviation
        floats = {name for name, array in state.model.items() if array.dtype.kind == "f"}
        weights, statistics = floats & state.parameters, floats - state.parameters
        self._changes = Changes(state.model, weights), Changes(state.model, statistics)
        self._lengths: dict[str, list[float]] = {}
        self._sketches: dict[str, npt.NDArray[np.float32]] = {}
        self._payloads: dict[str, float] = {}
        self._shared: dict[str, ClassSums | None] = {}

    def note(self, reply: SiteReply) -> None:
        """Measure a valid reply by itself."""
        if self._bound is not None:
            self._lengths[reply.site] = [changes.length(reply.model) for changes in self._changes]
            self._sketches[reply.site] = self._changes[0].sketch(reply.model)
            self._payloads[reply.site] = _norm(reply.payload)
            self._shared[reply.site] = reply.prototypes

    def outliers(self, replies: Mapping[str, SiteReply]) -> dict[str, str]:
        """Return the sites whose reply must not count, with the reason, given all that were noted."""
        if self._bound is None or len(replies) < ENOUGH:
            return {}
        shared = [self._shared[site] for site in replies]
        update, statistics = self._deviations(replies)
        wide = self._bound * SLACK
        measures = {
            "update": (self._bound, update),
            "BatchNorm statistics": (wide, statistics),
            "method payload": (wide, [self._payloads[site] for site in replies]),
            "prototypes": (wide, [_longest_mean(sums) for sums in shared]),
        }
        found: dict[str, str] = {}
        for what, (limit, lengths) in measures.items():
            for site, ratio in zip(replies, relative(lengths), strict=True):
                if ratio > limit:
                    reason = f"left out as an outlier: {what} {ratio:.3g} times the median, over {limit:.3g}"
                    found.setdefault(site, reason)
        astray = _astray({site: self._sketches[site] for site in replies})
        for site, reason in (_disagreeing(list(replies), shared) | astray).items():
            found.setdefault(site, reason)
        # Half of the sites may be odd in one way or another; that is no attack by a few, and nobody is left out for it.
        return found if len(found) <= (len(replies) - 1) // 2 else {}

    def _deviations(self, replies: Mapping[str, SiteReply]) -> list[list[float]]:
        """Return how far the updates, and then the changes of statistics, are from the mean of the others' each.

        In the mean a change counts with at most the median length, so that a huge one does not move everybody's
        measure.
        """
        lengths = np.array([self._lengths[site] for site in replies])
        medians = np.median(lengths, axis=0)
        shares = np.divide(medians, lengths, where=lengths > medians, out=np.ones_like(lengths))
        for reply, row in zip(replies.values(), shares, strict=True):
            for changes, share in zip(self._changes, row, strict=True):
                changes.add(reply.model, share)
        others = len(replies) - 1
        distances = [
            [changes.from_others(reply.model, share, others) for changes, share in zip(self._changes, row, strict=True)]
            for reply, row in zip(replies.values(), shares, strict=True)
        ]
        return [list(kind) for kind in zip(*distances, strict=True)]


def too_long(lengths: Sequence[float], federation: FederationConfig) -> list[bool]:
    """Return which of the sites' features are out of all proportion to the others'."""
    bound = federation.max_deviation
    return [bound is not None and ratio > bound * SLACK for ratio in relative(lengths)]


def restrained(replies: Collection[SiteReply], state: GlobalState, federation: FederationConfig) -> Iterable[SiteReply]:
    """Return the replies as ``federation.robust`` lets them count; without a rule, with no update far too long.

    ``median`` and ``trimmed_mean`` hold all of them in memory, the other rules one at a time.
    """
    if len(replies) < ENOUGH or not needs_all_replies(federation):
        return replies
    if federation.robust in ("none", "clip"):
        return _clipped(replies, state, LONGEST if federation.robust == "none" else 1)
    return _alike(list(replies), 0.5 if federation.robust == "median" else federation.trim)


def weights(samples: Mapping[str, int], federation: FederationConfig) -> dict[str, int]:
    """Return with how many images the sites count that tell of far more than the others, by site.

    There must be three others: of fewer, one alone would decide how much an honest site counts.
    """
    if len(samples) <= ENOUGH or federation.max_deviation is None or federation.sums_models:
        return {}
    numbers = np.array(list(samples.values()))
    most = {site: int(HEAVIEST * np.median(np.delete(numbers, i))) for i, site in enumerate(samples)}
    return {site: max(1, most[site]) for site, number in samples.items() if number > most[site]}


def offences(history: History) -> dict[str, int]:
    """Return in how many rounds in a row, up to the last one it was heard in, each site's reply was refused."""
    counts: dict[str, int] = {}
    for record in history.rounds:
        counts |= {site: counts.get(site, 0) + 1 for site in record.refused}
        counts |= dict.fromkeys(record.sites, 0)
    return {site: count for site, count in counts.items() if count}


def relative(lengths: Sequence[float]) -> list[float]:
    """Return each length as a multiple of the median of those that are not zero."""
    positive = [length for length in lengths if length > 0]
    if len(positive) < ENOUGH:
        return [0.0] * len(lengths)
    median = float(np.median(positive))
    return [length / median for length in lengths]


def _norm(arrays: Mapping[str, npt.NDArray[np.floating]]) -> float:
    parts = vectors([array for array in arrays.values() if array.dtype.kind == "f"])
    return float(np.sqrt(sum(float(np.linalg.norm(part.astype(np.float64))) ** 2 for part in parts)))


def _longest_mean(shared: ClassSums | None) -> float:
    """Return the length of the longest mean feature of a class; 0 of a site that shares none."""
    if shared is None:
        return 0.0
    return float((torch.linalg.vector_norm(shared.sums, dim=1) / shared.counts.clamp(min=1)).max())


def _disagreeing(sites: Sequence[str], shared: Sequence[ClassSums | None]) -> dict[str, str]:
    """Return the sites whose classes do not lie where those of the others lie, with the reason."""
    known = {site: found for site, found in zip(sites, agreements(shared), strict=True) if found is not None}
    usual = float(np.median([found.cosine for found in known.values()])) if len(known) >= ENOUGH else 0.0
    if usual < USUAL:
        return {}
    return {
        site: f"left out as an outlier: its prototypes agree with the others' to {found.cosine:.2f}, the median is "
        f"{usual:.2f}; are its labels right?"
        for site, found in known.items()
        if found.cosine < usual * share_asked(found.classes)
    }


def share_asked(classes: int) -> float:
    """Return the least share of the usual agreement that a site has to reach in so many classes.

    It is nearly half of it in eight classes, a quarter in three, and minus half in two. Honest hospitals with two
    classes and 40 images agreed to -0.2 in a round where 0.5 was usual.
    """
    return HALF - (classes - 1) ** -2


class Agreement(NamedTuple):
    """How far a site's classes lie where the others' do, and in how many classes they are compared."""

    cosine: float
    classes: int


def _astray(sketches: Mapping[str, npt.NDArray[np.float32]]) -> dict[str, str]:
    """Return the sites whose updates point elsewhere than those of the others, by their sketches, with the reason."""
    moved = {site: sketch / length for site, sketch in sketches.items() if (length := float(np.linalg.norm(sketch)))}
    if len(moved) < ENOUGH:
        return {}
    directions = np.stack(list(moved.values()))
    step = -(-len(directions) // MOST_COMPARED)  # among thousands, some stand for all
    cosines = directions @ directions[::step].T
    cosines[np.arange(0, len(directions), step), np.arange(cosines.shape[1])] = np.nan  # with itself
    own = np.nanmedian(cosines, axis=1)
    usual = float(np.median(own))
    if usual < SAME_WAY:
        return {}
    return {
        site: f"left out as an outlier: its update has cosine {cosine:.2f} with the others', the median is {usual:.2f}"
        for site, cosine in zip(moved, own, strict=True)
        if cosine < QUARTER * usual
    }


def agreements(shared: Sequence[ClassSums | None]) -> list[Agreement | None]:
    """Return how far the classes of each site lie where those of the others lie.

    It is the cosine between the directions of a site's class means and the mean of the others', both from the middle
    of the classes that are compared: 1 where they lie alike, 0 where one says nothing about the other. None of a site
    that shares fewer than two classes with others.
    """
    sharing = next((sums for sums in shared if sums is not None), None)
    if sharing is None:
        return [None] * len(shared)
    nothing = ClassSums.zeros(*sharing.sums.shape)
    held = np.stack([(sums or nothing).counts.numpy() > 0 for sums in shared])
    values = np.stack([(sums or nothing).sums.numpy() for sums in shared]).astype(np.float64)
    # (n, C, d): every mean at length 1, so that no site and no class counts for more than another.
    means = held[:, :, None] * values / np.maximum(np.linalg.norm(values, axis=2, keepdims=True), _TINY)
    others = held.sum(0) - held
    found: list[Agreement | None] = []
    for own, rest, compared, times in zip(means, means.sum(0) - means, held & (others > 0), others, strict=True):
        classes = int(compared.sum())
        if classes < 2:
            found.append(None)
            continue
        a, b = own[compared], rest[compared] / times[compared, None]
        a, b = a - a.mean(0), b - b.mean(0)
        cosine = float((a * b).sum() / max(np.linalg.norm(a) * np.linalg.norm(b), _TINY))
        found.append(Agreement(cosine, classes))
    return found


def _clipped(replies: Collection[SiteReply], state: GlobalState, longest: float) -> Iterator[SiteReply]:
    """Scale each update down to ``longest`` times the median length."""
    names = {name for name in state.parameters if state.model[name].dtype.kind == "f"}
    changes = Changes(state.model, names)
    lengths = [changes.length(reply.model) for reply in replies]
    most = longest * np.median(lengths)
    for reply, length in zip(replies, lengths, strict=True):
        model = reply.model
        if length > most:
            model = dict(model)
            for name in names:
                before = state.model[name]
                model[name] = (before + most / length * (model[name] - before)).astype(before.dtype)
        yield replace(reply, model=model)


def _alike(replies: Sequence[SiteReply], trim: float) -> list[SiteReply]:
    """Give every reply the same arrays: the coordinate-wise mean without the ``trim`` share at either end."""
    model = _trimmed([reply.model for reply in replies], trim)
    payload = _trimmed([reply.payload for reply in replies], trim)
    return [replace(reply, model=model, payload=payload) for reply in replies]


def _trimmed(many: Sequence[Arrays], trim: float) -> Arrays:
    """Return the coordinate-wise trimmed mean; at least one value goes at either end, and at least one stays."""
    count = len(many)
    cut = min(max(1, int(trim * count)), (count - 1) // 2)
    result = {}
    for name, first in many[0].items():
        values = np.sort(np.stack([arrays[name] for arrays in many]), axis=0)[cut : count - cut]
        result[name] = np.asarray(values.mean(axis=0)).astype(first.dtype)
    return result
