"""The closed-form head: add up the sites' statistics and solve for the classifier."""

import logging
import math
import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.evaluation.results import HeadRecord
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import Total, surplus
from fedmr_med.server.robust import too_long
from fedmr_med.server.shelf import Shelf
from fedmr_med.server.state import BIAS, WEIGHT, GlobalState, train_task
from fedmr_med.statistics.head import HeadStatistics, choose_shrinkage, projection, solve
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import HEAD
from fedmr_med.wire.statistics import HeadReply, decode_statistics
from fedmr_med.wire.totals import head_statistics, noisy_head_statistics

LONGEST = 1e6
"""Norm of a head's weights at most, as sites accept it; features that collapsed to points would give far more."""

FALLBACK_SHRINKAGE = 0.1
"""Where no site can set enough images aside to choose it."""

_log = logging.getLogger(__name__)


class HeadExchange(Exchange):
    """The statistics that sites share for a closed-form head.

    Args:
        job: the job's settings.
        state: the global state whose model makes the features.
    """

    kind = HEAD

    def __init__(self, job: JobConfig, state: GlobalState):
        super().__init__(job, state)
        self._classes, features = state.prototypes.means.shape
        self._directions = projection(job.seed, features, job.head.projection)
        self._size = features if self._directions is None else len(self._directions)
        # Statistics of thousands of clients would not fit in memory.
        self._replies: Shelf[HeadReply] = Shelf()
        self._lengths: dict[str, float] = {}

    def close(self, total: Total | None = None) -> GlobalState:
        """Return the state with the head of all sites; as it was if no statistics came, or they give no finite head.

        Replies are added up in the order of the site names, so the head does not depend on who answered first.
        """
        with self._lock:
            self._closed = True
            if total is not None:
                return self._of_total(total) or self.state
            answered = len(self._replies)
            sharing = self._comparable()
            if not sharing:
                return self.state
            none = HeadStatistics.zeros(self._classes, self._size)
            kept, held_out, size = none, none, 0
            for name in sharing:
                reply = self._replies[name]
                assert reply.kept is not None
                kept = kept + reply.kept
                held_out = held_out if reply.held_out is None else held_out + reply.held_out
                size += reply.bytes_up
        return self._solved(kept, held_out, sites=tuple(sharing), answered=answered, bytes_up=size) or self.state

    def _of_total(self, total: Total) -> GlobalState | None:
        """Return the state with the head of a secure total; None where it gives none."""
        private, read = self.job.federation.private, head_statistics
        if private is not None:
            gaussian, more = private.head_gaussian, surplus(self.job, total.record.sites)
            least, noise = math.ceil(more * gaussian.least_count), more * gaussian.moments_scale
            read = partial(noisy_head_statistics, least=least, noise=noise)
        statistics, record = total.read(read)
        kept, held_out = statistics or (HeadStatistics.zeros(self._classes, self._size),) * 2
        if not bool((kept.sums.counts > 0).any()):
            return None
        return self._solved(kept, held_out, sites=record.sites, answered=len(record.sites), bytes_up=record.bytes_up)

    def _counted(self) -> Collection[str]:
        return self._replies

    def _take(self, site: str, message: Message) -> None:
        reply = self._checked(site, message)
        self._replies.add(site, reply)
        if reply.kept is not None:
            self._lengths[site] = _longest_of(reply)

    def _solved(
        self, kept: HeadStatistics, held_out: HeadStatistics, *, sites: tuple[str, ...], answered: int, bytes_up: int
    ) -> GlobalState | None:
        """Solve for the head; None if it is not finite."""
        settings = self.job.head
        shrinkage = settings.shrinkage
        if shrinkage is None:
            choosable = kept.freedom > 0 and held_out.freedom > 0
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
            bytes_up=bytes_up,
            bytes_down=answered * self._bytes_down,
            seconds=time.monotonic() - self._started,
        )
        if not np.linalg.norm(arrays[WEIGHT]) <= LONGEST:
            _log.warning("no closed-form head: features of a class hardly differ, so that its weights have no bound")
            return None
        made = replace(self.state, head=arrays, history=self.state.history.with_head(record))
        return None if made.defect() else made

    @property
    def _bytes_down(self) -> int:
        """Size of the arrays that a site receives for the exchange."""
        task = train_task(self.state, self.job, "", self._replies)
        frozen = 0 if task.backbone is None else task.backbone.size
        return frozen + sum(array.nbytes for array in self.state.model.values())

    def _comparable(self) -> list[str]:
        """Return the sites that share statistics, without those whose features are far longer than the others'."""
        sharing = sorted(self._lengths)
        odd = too_long([self._lengths[name] for name in sharing], self.job.federation)
        return [name for name, out in zip(sharing, odd, strict=True) if not out]

    def _checked(self, site: str, message: Message) -> HeadReply:
        reply = decode_statistics(message, site, num_classes=self._classes, feature_size=self._size)
        if reply.round != self.state.round:
            raise WireError(
                f"the statistics are for the model after round {reply.round}, not {self.state.round}",
                code="wire.round",
                key="statistics",
            )
        longest, most = _longest_of(reply), self.job.federation.max_norm
        if not longest <= most:
            raise WireError(
                f"the statistics are of features of length {longest:.3g}, over {most:.3g}",
                code="wire.norm",
                key="statistics",
            )
        return reply


def _longest_of(reply: HeadReply) -> float:
    return max(_longest(reply.kept), _longest(reply.held_out))


def _longest(statistics: HeadStatistics | None) -> float:
    """Return the largest length of features that statistics tell of: of a class's mean, or around it."""
    if statistics is None:
        return 0.0
    counts = statistics.sums.counts
    means = torch.linalg.vector_norm(statistics.sums.sums, dim=1) / counts.clamp(min=1)
    spread = (statistics.scatter.trace() / counts.sum().clamp(min=1)).sqrt()
    return max(float(means.max()), float(spread))
