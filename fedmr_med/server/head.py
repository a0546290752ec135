"""The server's side of a head exchange: add up the sites' statistics and solve for the classifier."""

import logging
import threading
import time
from dataclasses import replace

import numpy as np
import torch

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.evaluation.results import Evaluation, HeadRecord, SecureRecord
from fedmr_med.server.robust import too_long
from fedmr_med.server.shelf import Shelf
from fedmr_med.server.state import GlobalState, train_task
from fedmr_med.server.stopping import has_ended
from fedmr_med.statistics.head import HeadStatistics, choose_shrinkage, projection, solve
from fedmr_med.wire.codec import Message
from fedmr_med.wire.statistics import HeadReply, decode_statistics

WEIGHT, BIAS = "classifier.weight", "classifier.bias"
HELD = 64
"""Statistics in memory at a time; those of further sites wait in a file."""

LONGEST = 1e6
"""Norm of a head's weights at most, as sites accept it; features that collapsed to points would give far more."""

FALLBACK_SHRINKAGE = 0.1
"""Where no site can set enough images aside to choose it."""

_log = logging.getLogger(__name__)


class HeadCollector:
    """Collects the statistics of one exchange; any thread may call it.

    Args:
        job: the job's settings.
        state: the global state whose model makes the features.
    """

    def __init__(self, job: JobConfig, state: GlobalState):
        self.job = job
        self.state = state
        self._classes, features = state.prototypes.means.shape
        self._directions = projection(job.seed, features, job.head.projection)
        self._size = features if self._directions is None else len(self._directions)
        self._lock = threading.Lock()
        # Statistics of thousands of clients would not fit in memory.
        self._replies: Shelf[HeadReply] = Shelf(HELD)
        self._lengths: dict[str, float] = {}
        self._started = time.monotonic()

    @property
    def answered(self) -> list[str]:
        """The sites that have answered, sharing or not."""
        with self._lock:
            return sorted(self._replies)

    def offer(self, site: str, message: Message) -> None:
        """Take a site's statistics if all of them are in order.

        Raises:
            WireError: they do not count; the message is the reason.
        """
        with self._lock:
            try:
                reply = self._checked(site, message)
            except WireError:
                raise
            except Exception as e:
                # Whatever a reply does to its readers, it must not stop the other sites.
                raise WireError(
                    f"the statistics could not be read ({type(e).__name__})", code="wire.unreadable", key="statistics"
                ) from e
            self._replies.add(site, reply)
            if reply.kept is not None:
                self._lengths[site] = _longest_of(reply)

    def close_secure(
        self, statistics: tuple[HeadStatistics, HeadStatistics] | None, record: SecureRecord
    ) -> GlobalState | None:
        """Return the state with the head of a secure total; None without one, or where :meth:`close` gives none."""
        kept, held_out = statistics or (HeadStatistics.zeros(self._classes, self._size),) * 2
        if not bool((kept.sums.counts > 0).any()):
            return None
        return self._made(kept, held_out, sites=record.sites, answered=len(record.sites), bytes_up=record.bytes_up)

    def close(self) -> GlobalState | None:
        """Return the state with the head of all sites; None if no site shares statistics, or they give no finite head.

        Replies are added up in the order of the site names, so the head does not depend on who answered first.
        """
        with self._lock:
            answered = len(self._replies)
            sharing = self._comparable()
            if not sharing:
                return None
            none = HeadStatistics.zeros(self._classes, self._size)
            kept, held_out, size = none, none, 0
            for name in sharing:
                reply = self._replies[name]
                assert reply.kept is not None
                kept = kept + reply.kept
                held_out = held_out if reply.held_out is None else held_out + reply.held_out
                size += reply.bytes_up
        return self._made(kept, held_out, sites=tuple(sharing), answered=answered, bytes_up=size)

    def _made(
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
        if site in self._replies:
            raise WireError("a second answer", code="wire.duplicate", key="statistics")
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


def with_head(state: GlobalState) -> GlobalState:
    """Return the state with the closed-form head in its model, for scoring and for what leaves; never for training."""
    state = state.leaving()
    return replace(state, model={**state.model, **state.head})


def scored_head(state: GlobalState, scored_by: Evaluation) -> GlobalState:
    """Return the state with the scores of its head put down."""
    record = state.history.head
    assert record is not None
    scored = record.model_copy(update={"evaluation": scored_by})
    return state.scored(state.history.with_head(scored))


def head_exchange(job: JobConfig) -> str | int:
    """Return when the job asks for statistics: its own word, else its method's."""
    return methods.build(job.method).head_exchange if job.head.exchange is None else job.head.exchange


def wants_head(job: JobConfig, exchange: str | int, state: GlobalState) -> bool:
    """Whether an exchange is due now: after the last round, or after every k-th, and not done yet.

    Args:
        job: the job's settings.
        exchange: ``none``, ``last``, or k.
        state: the global state.
    """
    done = state.history.head is not None and state.history.head.round == state.round
    if exchange == "none" or done or WEIGHT not in state.model or BIAS not in state.model:
        return False
    return has_ended(job, state) or (isinstance(exchange, int) and state.round % exchange == 0)
