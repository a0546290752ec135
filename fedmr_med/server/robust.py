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
site shares as well are compared; a site that has a class to itself, or shares none, is not judged by it.

**The rules of** ``federation.robust`` go further, for everybody and in every round, and cost something without an
attack. ``clip`` scales each update down to the median length. ``median`` and ``trimmed_mean`` replace each reply's
weights, statistics and payload by one coordinate-wise estimate: sites then count alike, whatever number of images they
tell of, and what only one site knows is lost.

All of this needs three replies: between two, nobody can tell who is wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.arrays import Arrays
from fedmr_med.config import FederationConfig
from fedmr_med.evaluation.results import History
from fedmr_med.prototypes import ClassSums
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.sums import vectors
from fedmr_med.wire.messages import SiteReply

ENOUGH = 3
"""Fewer replies have no majority."""

SLACK = 3
"""How much wider the bound is for what differs between honest sites more than updates do: statistics of their images,
features of networks that
each site trained by itself, and what a method adds, such as a number of steps."""

USUAL, HALF = 0.5, 0.5
"""Sites are judged by their prototypes once their agreement has this median, and left out below this share of it."""

_CHUNK = 1 << 18  # values per reply that are compared at a time
_TINY = 1e-300
Matrix = npt.NDArray[np.float64]


def needs_all_replies(federation: FederationConfig) -> bool:
    """Whether a round's replies have to be held until the last one is there, to be compared."""
    return not federation.sums_models and (federation.robust != "none" or federation.max_deviation is not None)


def outliers(replies: Sequence[SiteReply], state: GlobalState, federation: FederationConfig) -> dict[str, str]:
    """Return the sites whose reply must not count, with the reason.

    Args:
        replies: valid replies of one round, each of another site.
        state: the global state the round starts from.
        federation: says how far is too far.
    """
    bound = federation.max_deviation
    if bound is None or len(replies) < ENOUGH or federation.sums_models:
        return {}
    floats = {name for name, array in state.model.items() if array.dtype.kind == "f"}
    weights, statistics = floats & state.parameters, floats - state.parameters
    measures = {
        "update": (bound, _deviations(_products(replies, state.model, weights))),
        "BatchNorm statistics": (bound * SLACK, _deviations(_products(replies, state.model, statistics))),
        "method payload": (bound * SLACK, _relative([_norm(reply.payload) for reply in replies])),
        "prototypes": (bound * SLACK, _relative([_longest_mean(reply.prototypes) for reply in replies])),
    }
    found: dict[str, str] = {}
    for what, (limit, ratios) in measures.items():
        for reply, ratio in zip(replies, ratios, strict=True):
            if ratio > limit:
                reason = f"left out as an outlier: {what} {ratio:.3g} times the median, over {limit:.3g}"
                found.setdefault(reply.site, reason)
    for site, reason in _disagreeing(replies).items():
        found.setdefault(site, reason)
    # Half of the sites may be odd in one way or another; that is no attack by a few, and nobody is left out for it.
    return found if len(found) <= (len(replies) - 1) // 2 else {}


def too_long(lengths: Sequence[float], federation: FederationConfig) -> list[bool]:
    """Return which of the sites' features are out of all proportion to the others'."""
    bound = federation.max_deviation
    return [bound is not None and ratio > bound * SLACK for ratio in _relative(lengths)]


def restrained(replies: Sequence[SiteReply], state: GlobalState, federation: FederationConfig) -> Sequence[SiteReply]:
    """Return the replies as ``federation.robust`` lets them count."""
    if federation.robust == "none" or len(replies) < ENOUGH:
        return replies
    if federation.robust == "clip":
        return _clipped(replies, state)
    return _alike(replies, 0.5 if federation.robust == "median" else federation.trim)


def offences(history: History) -> dict[str, int]:
    """Return in how many rounds in a row, up to the last one it was heard in, each site's reply was refused."""
    counts: dict[str, int] = {}
    for record in history.rounds:
        counts |= {site: counts.get(site, 0) + 1 for site in record.refused}
        counts |= dict.fromkeys(record.sites, 0)
    return {site: count for site, count in counts.items() if count}


def _products(replies: Sequence[SiteReply], origin: Arrays, names: set[str]) -> Matrix:
    """Return the inner products (n, n) of the replies' changes of some arrays."""
    order = sorted(names)
    start = vectors([origin[name] for name in order])
    ends = [vectors([reply.model[name] for name in order]) for reply in replies]
    products = np.zeros((len(replies), len(replies)))
    for part, before in enumerate(start):
        for first in range(0, len(before), _CHUNK):
            piece = slice(first, first + _CHUNK)
            changes = np.stack([end[part][piece] - before[piece] for end in ends])
            products += changes @ changes.T
    return products


def _deviations(products: Matrix) -> list[float]:
    """Return how far each change is from the mean of the others, relative to the median of that.

    In the mean a change counts with at most the median length, so that a huge one does not move everybody's measure.
    """
    lengths = np.sqrt(np.diag(products))
    shrink = np.minimum(1, np.divide(np.median(lengths), lengths, where=lengths > 0, out=np.ones_like(lengths)))
    count = len(lengths)
    # Row k of ``weights`` makes change k minus the mean of the others out of all changes.
    weights = (np.eye(count) - 1) * shrink / (count - 1) + np.eye(count)
    squares = np.einsum("ki,ij,kj->k", weights, products, weights)
    return _relative(np.sqrt(np.maximum(squares, 0)).tolist())


def _relative(lengths: Sequence[float]) -> list[float]:
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


def _disagreeing(replies: Sequence[SiteReply]) -> dict[str, str]:
    """Return the sites whose classes do not lie where those of the others lie, with the reason."""
    found = agreements([reply.prototypes for reply in replies])
    known = [agreement for agreement in found if agreement is not None]
    usual = float(np.median(known)) if len(known) >= ENOUGH else 0.0
    if usual < USUAL:
        return {}
    return {
        reply.site: f"left out as an outlier: its prototypes agree with the others' to {agreement:.2f}, the median is "
        f"{usual:.2f}; are its labels right?"
        for reply, agreement in zip(replies, found, strict=True)
        if agreement is not None and agreement < HALF * usual
    }


def agreements(shared: Sequence[ClassSums | None]) -> list[float | None]:
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
    found: list[float | None] = []
    for own, rest, compared, times in zip(means, means.sum(0) - means, held & (others > 0), others, strict=True):
        if compared.sum() < 2:
            found.append(None)
            continue
        a, b = own[compared], rest[compared] / times[compared, None]
        a, b = a - a.mean(0), b - b.mean(0)
        found.append(float((a * b).sum() / max(np.linalg.norm(a) * np.linalg.norm(b), _TINY)))
    return found


def _clipped(replies: Sequence[SiteReply], state: GlobalState) -> list[SiteReply]:
    """Scale each update down to the median length."""
    names = {name for name in state.parameters if state.model[name].dtype.kind == "f"}
    lengths = np.sqrt(np.diag(_products(replies, state.model, names)))
    median = np.median(lengths)
    result = []
    for reply, length in zip(replies, lengths, strict=True):
        model = reply.model
        if length > median:
            model = dict(model)
            for name in names:
                before = state.model[name]
                model[name] = (before + median / length * (model[name] - before)).astype(before.dtype)
        result.append(replace(reply, model=model))
    return result


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
