"""The server's side of a round: add up the replies, and make the new global state."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from pydantic import JsonValue

from fedmr_med import methods
from fedmr_med.arrays import Arrays, distance
from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import RoundRecord, SecureRecord, SiteRound
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.methods.base import Contribution
from fedmr_med.models.norm import batch_norm_names
from fedmr_med.prototypes import ClassSums
from fedmr_med.server.optimizer import server_step
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.fields import Values
from fedmr_med.statistics.model_sums import ModelSums
from fedmr_med.wire.messages import SiteReply

SLACK = 4
"""How much longer than one site's longest update that of all sites may be: FedNova weighs updates by their steps."""


class PrototypeAggregator:
    """Adds up the replies of one round: the models, and the class sums of the sites that share them.

    A site that opted out of prototypes is absent from their mean and counts in the model like any other. A reply
    counts whole or not at all: the caller looks at all of it (:class:`fedmr_med.server.checks.ReplyCheck`), and then
    adds it in the order of the site names, so that the result does not depend on who answered first.

    Attributes:
        state: the global state the round started from.
        sites: the sites whose reply was added.
        weights: with how many images sites count that tell of too many, in the model, and in all classes of the
            prototypes together; set it before they are added.
    """

    def __init__(self, job: JobConfig, state: GlobalState):
        method = methods.build(job.method)
        self.job = job
        self.state = state
        self._inertia = method.prototype_inertia
        self._optimizer = job.federation.server or method.server_optimizer
        self._server = method.server()
        self._models = ModelSums(self._server, state.model, state.parameters, buffers=job.federation.buffers)
        self._class_sums = ClassSums.zeros(*state.prototypes.means.shape)
        self._secure: SecureRecord | None = None
        self._total_scores: Scores | None = None
        self.sites: dict[str, SiteRound] = {}
        self.weights: Mapping[str, int] = {}
        self._scores: dict[str, Scores | None] = {}

    def add(self, *replies: SiteReply) -> None:
        """Add replies that were checked; many at once take less time than one after the other."""
        if not self.job.federation.sums_models:
            weights = {reply.site: self.weights.get(reply.site, reply.samples) for reply in replies}
            self._models.add(*(Contribution(r.site, weights[r.site], r.model, r.payload) for r in replies))
        for reply in replies:
            self._note(reply)

    def _note(self, reply: SiteReply) -> None:
        if reply.prototypes is not None:
            weight = self.weights.get(reply.site)
            sums = reply.prototypes if weight is None else reply.prototypes.fewer(weight / reply.samples)
            self._class_sums = self._class_sums + sums
        self._scores[reply.site] = reply.scores
        self.sites[reply.site] = SiteRound(
            samples=reply.samples,
            shared_classes=self._shared_names(reply),
            bytes_up=reply.bytes_up,
            bytes_down=reply.bytes_down,
            **({} if reply.report is None else reply.report.model_dump()),
        )

    def add_total(
        self, record: SecureRecord, sums: ClassSums | None, scores: Scores | None, models: Values | None
    ) -> None:
        """Take the statistics of all sites together, where no reply holds any.

        Args:
            record: who took part in the secure sum, and what it cost.
            sums: class sums of all of them; None where nothing could be opened: the prototypes age then.
            scores: of the model that the round started from, pooled; None where nobody shares any.
            models: the sums of the trained models; None where every reply holds its own, or nothing could be opened.

        Raises:
            FedMRError: it should hold their models too, and does not: without them there is no round.
        """
        self._secure, self._total_scores = record, scores
        if self.job.federation.sums_models:
            if models is None:
                raise FedMRError(
                    f"Round {self.state.round + 1} has no secure total of the models: {record.error}. "
                    f"Missing: {', '.join(record.dropped) or 'nobody'}. The global state stays; resume the chain once "
                    "the same sites are there.",
                    code="round.no-secure-total",
                    key="federation.secure",
                )
            self._models.take(models, sites=len(record.sites), most_images=self.job.federation.max_samples)
        if sums is not None:
            self._class_sums = self._class_sums + sums

    def finish(
        self,
        num_sites: int,
        refused: Mapping[str, str],
        seconds: float = 0.0,
        statistics: Mapping[str, JsonValue] = MappingProxyType({}),
    ) -> GlobalState:
        """Return the global state after the round.

        Args:
            num_sites: sites of the federation, whether or not they took part.
            refused: sites whose reply did not count, with the reason.
            statistics: what statistics of other packages say of the round.

        Raises:
            WireError: no reply was added, or together they give values that are not finite.
        """
        state = self.state
        if not self.sites:
            raise WireError(f"round {state.round + 1} has no usable reply", code="round.too-few-replies")
        start = self._models.parameters
        made, method_state, buffers = self._models.finish(state.method, num_sites)
        self._check_total(start, made)
        averaged = self._server.averaged(made, method_state, num_sites)
        parameters, optimizer_state = server_step(self._optimizer, start, made, state.optimizer)
        model = {**state.model, **parameters, **buffers}
        if self.job.federation.buffers == "local":
            model |= {name: state.model[name] for name in batch_norm_names(state.model)}
        secure, history = self._secure, state.history
        record = RoundRecord(
            round=state.round + 1,
            sites=self.sites,
            refused=dict(refused),
            limited=tuple(sorted(self.weights)),
            seconds=seconds,
            secure=secure,
            prototype_norm=self._class_sums.norm,
            statistics=dict(statistics),
        )
        validates = self.job.train.validation > 0
        if secure is not None and self._total_scores is not None:
            total = Evaluation.of_total(state.round, self._total_scores, secure.sites, validates=validates)
            history = history.with_evaluation(total)
        elif any(scores is not None for scores in self._scores.values()):
            history = history.with_evaluation(Evaluation.of(state.round, self._scores, validates=validates))
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
            raise WireError(
                f"round {new.round} of {', '.join(self.sites)} gives {what}; the global state stays",
                code="round.not-finite",
            )
        return new

    def _check_total(self, start: Arrays, made: Arrays) -> None:
        """Refuse a secure total that sites which keep their updates short do not give."""
        if not self.job.federation.sums_models:
            return
        moved = distance(made, start)
        if not moved <= SLACK * self.job.federation.clip_update:
            raise WireError(
                f"round {self.state.round + 1} would move the model by {moved:.3g}, which sites that keep to "
                f"federation.clip_update {self.job.federation.clip_update:.3g} do not; the global state stays",
                code="round.too-far",
                key="federation.clip_update",
            )

    def _shared_names(self, reply: SiteReply) -> tuple[str, ...]:
        if reply.prototypes is None:
            return ()
        names = self.job.task.class_names
        return tuple(names[i] for i in reply.prototypes.counts.nonzero().flatten().tolist())
