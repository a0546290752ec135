"""The closed-form head: add up the sites' statistics and solve for the classifier."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.evaluation.base import Statistics
from fedmr_med.evaluation.records import HeadRecord
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import Total, origin
from fedmr_med.server.checks import Registered
from fedmr_med.server.head_comparison import Limits, Selection, select
from fedmr_med.server.kept_head import TOTAL
from fedmr_med.server.robust import too_long
from fedmr_med.server.state import BIAS, WEIGHT, GlobalState, train_task
from fedmr_med.statistics.fields import Values, add
from fedmr_med.statistics.head import HeadStatistics, choose_shrinkage, projection, solve
from fedmr_med.statistics.moments import COUNTS, HELD_OUT, KEPT, MEANS
from fedmr_med.wire.codec import Message, encode_reply
from fedmr_med.wire.kinds import HEAD
from fedmr_med.wire.messages import SiteReply
from fedmr_med.wire.secure import RELEASE, SITES

LONGEST = 1e6
"""Norm of a head's weights at most, as sites accept it; features that collapsed to points would give far more."""

VECTOR = "vector"
"""Of a total that is kept: what the sites' vectors add up to, modulo 2^64."""

FALLBACK_SHRINKAGE = 0.1
"""Where no site can set enough images aside to choose it."""

_log = logging.getLogger(__name__)


class HeadExchange(Exchange):
    """The statistics that sites share for a closed-form head, of the features that the state's model makes."""

    kind = HEAD

    def __init__(self, job: JobConfig, state: GlobalState):
        super().__init__(job, state)
        self._classes, features = state.prototypes.means.shape
        self._directions = projection(job.seed, features, job.head.projection)
        self._size = features if self._directions is None else len(self._directions)
        self._lengths: dict[str, float] = {}
        self._counts: dict[str, npt.NDArray[np.int64]] = {}
        self._registered = Registered.of(state.history, job)

    def close(self, total: Total | None = None) -> GlobalState:
        """Return the state with the head of all sites; as it was if no statistics came, or they give no finite head.

        Replies are added up in the order of the site names, so the head does not depend on who answered first. Who
        counts, and how much, says :mod:`fedmr_med.server.head_comparison`.
        """
        try:
            return self._closed_state(total)
        except torch.linalg.LinAlgError as e:  # type: ignore[attr-defined]  # torch's own documented name
            reason = f"the features of the sites give no head: {e}"
            _log.warning("no closed-form head: %s", reason)
            return replace(self.state, history=self.state.history.without_head(reason))

    def _closed_state(self, total: Total | None) -> GlobalState:
        with self._lock:
            self._closed = True
            if total is None:
                selection = self._selected()
                sites, limited, answered = selection.sites, tuple(selection.limits), len(self._replies)
                size = sum(self._replies[name].bytes_up for name in sites)
                parts = self._read(self._added_up(selection), len(sites))
            else:
                read, record = total.read(lambda values: self._read(values, len(total.record.sites)))
                if read is None:
                    _log.warning("no closed-form head: the secure sum of the sites' statistics was not opened")
                    return self.state
                parts, sites, limited, answered, size = read, record.sites, (), len(record.sites), record.bytes_up
            results = self._shared_results(sites, total)
        made = self._solved(*parts, results, sites=sites, answered=answered, bytes_up=size, limited=limited)
        return made or self.state

    def _added_up(self, selection: Selection) -> dict[str, Values]:
        totals: dict[str, Values] = {}
        for name in selection.sites:
            values = self._values(name, selection.limits.get(name))
            totals |= {part: add(totals[part], new) if part in totals else new for part, new in values.items()}
        return totals

    def _read(self, values: Mapping[str, Values], sites: int) -> tuple[HeadStatistics, HeadStatistics]:
        """Return the statistics of the kept and of the held-out samples of some sites.

        Raises:
            WireError: no samples add up to them.
        """
        known = origin(self.job, sites, of_head=True)
        none = HeadStatistics.zeros(self._classes, self._size)
        kept, held_out = (
            (statistic.read(values[statistic.name], known) if statistic.name in values else None) or none
            for statistic in (KEPT, HELD_OUT)
        )
        means = MEANS.read(values[MEANS.name], known) if MEANS.name in values else None
        return (kept if means is None else kept + HeadStatistics.from_sums(means)), held_out

    def kept(self, total: Total | None) -> Iterator[tuple[str, Message]]:
        """Yield what the server keeps so that the head can be made anew: what each site shares, as it was sent.

        Also of sites that were left out as outliers: without another site they may count. Of a secure sum it is the
        total, with its sites.
        """
        if total is not None:
            if total.vector is not None:
                sites = list(total.record.sites)
                yield (
                    TOTAL,
                    Message({TOTAL: {VECTOR: total.vector.view(np.int64)}}, {RELEASE: total.name, SITES: sites}),
                )
            return
        for site in self._replies:
            reply = self._replies[site]
            if reply.statistics:
                yield site, encode_reply(HEAD, reply)

    def _take(self, reply: SiteReply) -> None:
        site = reply.site
        if reply.round != self.state.round:
            raise WireError(
                f"the statistics are for the model after round {reply.round}, not {self.state.round}",
                code="wire.round",
                key="statistics",
            )
        own = _own(reply)
        kept, held_out = self._read(own, 1)
        longest, most = max(_longest(kept), _longest(held_out)), self.job.federation.max_norm
        if not longest <= most:
            raise WireError(
                f"the statistics are of features of length {longest:.3g}, over {most:.3g}",
                code="wire.norm",
                key="statistics",
            )
        counts = (kept.sums.counts + held_out.sums.counts).numpy()
        if own and self.job.federation.private is None:
            self._registered.check(site, int(counts.sum()))
        super()._take(reply)
        if own:
            self._lengths[site], self._counts[site] = longest, counts

    def _solved(
        self,
        kept: HeadStatistics,
        held_out: HeadStatistics,
        statistics: Statistics,
        *,
        sites: tuple[str, ...],
        answered: int,
        bytes_up: int,
        limited: tuple[str, ...] = (),
    ) -> GlobalState | None:
        """Solve for the head; None if there are no samples, or it is not finite."""
        if not bool((kept.sums.counts > 0).any()):
            _log.warning("no closed-form head: no site shares statistics that count")
            return None
        settings = self.job.head
        shrinkage = settings.shrinkage
        if shrinkage is None:
            unknown = (held_out.sums.counts > 0) & (kept.sums.counts == 0)
            choosable = kept.freedom > 0 and held_out.freedom > 0 and not bool(unknown.any())
            shrinkage = choose_shrinkage(kept, held_out, prior=settings.prior) if choosable else FALLBACK_SHRINKAGE
        everything = kept + held_out
        head = solve(everything, shrinkage, settings.prior)
        weight = head.weight if self._directions is None else head.weight @ self._directions
        arrays = {WEIGHT: weight.float().numpy(), BIAS: head.bias.float().numpy()}
        present = np.flatnonzero(everything.sums.counts.numpy() > 0)
        record = HeadRecord(
            round=self.state.round,
            shrinkage=shrinkage if everything.freedom else None,
            prior=settings.prior,
            sites=sites,
            classes=tuple(self.job.task.class_names[c] for c in present),
            refused=dict(sorted(self._refused.items())),
            limited=limited,
            bytes_up=bytes_up,
            bytes_down=answered * self._bytes_down,
            seconds=time.monotonic() - self._started,
            statistics=statistics,
        )
        if not np.linalg.norm(weight.numpy()) <= LONGEST:
            _log.warning("no closed-form head: features of a class hardly differ, so that its weights have no bound")
            return None
        made = replace(
            self.state, head=arrays, history=self.state.history.with_head(record, whole=len(present) == self._classes)
        )
        return None if made.defect() else made

    @property
    def _bytes_down(self) -> int:
        """Size of the arrays that a site receives for the exchange."""
        task = train_task(self.state, self.job, "", self._replies)
        frozen = 0 if task.backbone is None else task.backbone.size
        return frozen + sum(array.nbytes for array in self.state.model.values())

    def _selected(self) -> Selection:
        """Compare the sites that share statistics, and say who does not count, and who counts less."""
        sharing, federation = sorted(self._lengths), self.job.federation
        if federation.max_deviation is None:
            return Selection(tuple(sharing))
        odd = too_long([self._lengths[name] for name in sharing], federation)
        left_out = {
            name: "left out as an outlier: its features are far longer than the others'"
            for name, out in zip(sharing, odd, strict=True)
            if out
        }
        selection = Selection(tuple(name for name in sharing if name not in left_out))
        if federation.private is None:
            counts = {name: self._counts[name] for name in selection.sites}
            selection = select(
                counts, lambda name, limits: self._read(self._values(name, limits), 1), federation.max_deviation
            )
        for name, reason in (left_out | dict(selection.left_out)).items():
            _log.warning("closed-form head: %s %s", name, reason)
            self._refused.setdefault(name, reason)
        for name in selection.limits:
            _log.warning(
                "closed-form head: %s reports far more images of a class than the others, and counts less", name
            )
        return selection

    def _values(self, site: str, limits: Limits | None) -> Mapping[str, Values]:
        """Return what a site shares, with no more images than ``limits``."""
        values = _own(self._replies[site])
        return values if limits is None else _limited(values, torch.from_numpy(limits))


def _own(reply: SiteReply) -> dict[str, Values]:
    """Return what a site puts in for the head, by part, without statistics of other packages."""
    parts = (KEPT.part, HELD_OUT.part, MEANS.part)
    return {part: reply.statistics[part] for part in parts if part in reply.statistics}


def _longest(statistics: HeadStatistics) -> float:
    """Return the largest length of features that statistics tell of: of a class's mean, or around it."""
    counts = statistics.sums.counts
    means = torch.linalg.vector_norm(statistics.sums.sums, dim=1) / counts.clamp(min=1)
    spread = (statistics.scatter.trace() / counts.sum().clamp(min=1)).sqrt()
    return max(float(means.max()), float(spread))


def _limited(values: Mapping[str, Values], limits: torch.Tensor) -> dict[str, Values]:
    """Return a site's statistics as if it had ``limits`` (C,) images of each class at most, with the same means.

    The scatter cannot be taken apart by class, so all of it shrinks like the number of its images.
    """
    total = torch.from_numpy(sum(part[COUNTS] for part in values.values()))
    shares = limits / total.clamp(min=1)
    result: dict[str, Values] = {}
    for statistic in (KEPT, HELD_OUT):
        read = statistic.read(values[statistic.name]) if statistic.name in values else None
        if read is not None:
            sums = read.sums.fewer(shares)
            scale = float(sums.counts.sum() / read.sums.counts.sum())
            result[statistic.name] = statistic.values(HeadStatistics(sums, sums, scale * read.scatter))
    means = MEANS.read(values[MEANS.name]) if MEANS.name in values else None
    return result if means is None else result | {MEANS.name: MEANS.values(means.fewer(shares))}
