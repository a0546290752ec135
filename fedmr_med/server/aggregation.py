"""The server's side of a round: validate every reply as a whole, add it up, and make the new global state."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedmr_med import methods
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.methods.base import Contribution
from fedmr_med.metrics import Scores
from fedmr_med.models.norm import batch_norm_names
from fedmr_med.prototypes import ClassSums
from fedmr_med.results import Evaluation, RoundRecord, SecureRecord, SiteRound
from fedmr_med.server.checks import ReplyCheck
from fedmr_med.server.optimizer import server_step
from fedmr_med.server.state import GlobalState
from fedmr_med.sums import Sums
from fedmr_med.wire.messages import SiteReply


@dataclass(frozen=True)
class SecureStatistics:
    """What a secure sum over the sites gave for a round.

    Attributes:
        record: who took part, and what it cost.
        sums: class sums of all of them; None where nothing could be opened: the prototypes age then.
        scores: of the model that the round started from, pooled; None where nobody shares any.
    """

    record: SecureRecord
    sums: ClassSums | None = None
    scores: Scores | None = None


class PrototypeAggregator:
    """Adds up the replies of one round: the models, and the class sums of the sites that share them.

    A site that opted out of prototypes is absent from their mean and counts in the model like any other. A reply
    counts whole or not at all: :meth:`check` looks at everything before :meth:`add` uses any of it. The caller adds
    replies in the order of the site names, so that the result does not depend on who answered first.

    Attributes:
        state: the global state the round started from.
        sites: the sites whose reply was added.
    """

    def __init__(self, job: JobConfig, state: GlobalState):
        method = methods.build(job.method)
        self.job = job
        self.state = state
        self.server = method.server()
        self._inertia = method.prototype_inertia
        self._optimizer = job.federation.server or method.server_optimizer
        self.parameters = {name: array for name, array in state.model.items() if name in state.parameters}
        self._check = ReplyCheck(job, state)
        self._buffer_names = [name for name in state.model if name not in state.parameters]
        self._sums = Sums()
        self._counters: Arrays = {}
        self._first_buffers: Arrays | None = None
        self._class_sums = ClassSums.zeros(*state.prototypes.means.shape)
        self._samples = 0
        self._secure: SecureStatistics | None = None
        self.sites: dict[str, SiteRound] = {}
        self._scores: dict[str, Scores | None] = {}

    def check(self, reply: SiteReply) -> None:
        """Validate a reply against the global state.

        Raises:
            WireError: with the reason, naming the site.
        """
        if reply.site in self.sites:
            raise WireError(f"{reply.site}: a second reply in the same round")
        self._check.check(reply)

    def add(self, *replies: SiteReply) -> None:
        """Add replies that passed :meth:`check`; many at once take less time than one after the other."""
        for reply in replies:
            self._add(reply)
        self._sums.flush()

    def _add(self, reply: SiteReply) -> None:
        contribution = Contribution(reply.site, reply.samples, reply.model, reply.payload)
        self.server.add(self._sums, contribution, self.parameters)
        self._add_buffers(reply)
        self._samples += reply.samples
        if reply.prototypes is not None:
            self._class_sums = self._class_sums + reply.prototypes
        self._scores[reply.site] = reply.scores
        self.sites[reply.site] = SiteRound(
            samples=reply.samples,
            shared_classes=self._shared_names(reply),
            bytes_up=reply.bytes_up,
            bytes_down=reply.bytes_down,
            **({} if reply.report is None else reply.report.model_dump(exclude_unset=True)),
        )

    def add_secure(self, statistics: SecureStatistics) -> None:
        """Take the statistics of all sites together, where no reply holds any."""
        self._secure = statistics
        if statistics.sums is not None:
            self._class_sums = self._class_sums + statistics.sums

    def finish(self, num_sites: int, refused: Mapping[str, str], seconds: float = 0.0) -> GlobalState:
        """Return the global state after the round.

        Args:
            num_sites: sites of the federation, whether or not they took part.
            refused: sites whose reply did not count, with the reason.
            seconds: wall time of the round.

        Raises:
            WireError: no reply was added, or together they give values that are not finite.
        """
        state = self.state
        if not self.sites:
            raise WireError(f"round {state.round + 1} has no usable reply")
        made, method_state = self.server.finish(self._sums, self.parameters, state.method, num_sites)
        averaged = self.server.averaged(made, method_state, num_sites)
        parameters, optimizer_state = server_step(self._optimizer, self.parameters, made, state.optimizer)
        model = {**state.model, **parameters, **self._buffers()}
        if self.job.federation.buffers == "local":
            model |= {name: state.model[name] for name in batch_norm_names(state.model)}
        secure, history = self._secure, state.history
        record = RoundRecord(
            round=state.round + 1,
            sites=self.sites,
            refused=dict(refused),
            seconds=seconds,
            secure=None if secure is None else secure.record,
            prototype_norm=self._class_sums.norm,
        )
        if secure is not None and secure.scores is not None:
            history = history.with_evaluation(Evaluation.of_total(state.round, secure.scores, secure.record.sites))
        elif any(scores is not None for scores in self._scores.values()):
            history = history.with_evaluation(Evaluation.of(state.round, self._scores))
        new = replace(
            state,
            model={name: value.astype(state.model[name].dtype, copy=False) for name, value in model.items()},
            prototypes=state.prototypes.updated(self._class_sums, inertia=self._inertia),
            method=method_state,
            optimizer=optimizer_state,
            averaged={name: value.astype(state.model[name].dtype) for name, value in averaged.items()},
            round=state.round + 1,
            accepted=state.accepted | dict.fromkeys(self.sites, state.round),
            history=history.with_round(record),
        )
        if what := new.defect():
            raise WireError(f"round {new.round} of {', '.join(self.sites)} gives {what}; the global state stays")
        return new

    def _add_buffers(self, reply: SiteReply) -> None:
        buffers = {name: reply.model[name] for name in self._buffer_names}
        if self._first_buffers is None:
            self._first_buffers = buffers
        floats = {name: array for name, array in buffers.items() if array.dtype.kind == "f"}
        self._sums.add("buffers", floats, reply.samples)
        for name in buffers.keys() - floats.keys():
            highest = np.maximum(self._counters.get(name, buffers[name]), buffers[name])
            self._counters[name] = np.asarray(highest)  # numpy makes a scalar of an array without dimensions

    def _buffers(self) -> Arrays:
        if self.job.federation.buffers == "first":
            return self._first_buffers or {}
        return {**self._sums.mean("buffers", self._samples), **self._counters}

    def _shared_names(self, reply: SiteReply) -> tuple[str, ...]:
        if reply.prototypes is None:
            return ()
        names = self.job.task.class_names
        return tuple(names[i] for i in reply.prototypes.counts.nonzero().flatten().tolist())
