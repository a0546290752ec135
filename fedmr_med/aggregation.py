"""The server's side of a round: validate every reply as a whole, add it up, and make the new global state."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.methods import Method
from fedmr_med.methods.base import Arrays, Contribution, Sums
from fedmr_med.metrics import Scores, pooled
from fedmr_med.prototypes import ClassSums
from fedmr_med.results import Evaluation, RoundRecord, Score, SiteRound
from fedmr_med.state import GlobalState, SiteReply

_LARGE = 1e37  # a sum of squares in float32 can be trusted below it


class RoundAggregation:
    """Adds up the replies of one round.

    A reply counts whole or not at all: :meth:`check` looks at everything before :meth:`add` uses any of it.
    The caller adds replies in the order of the site names, so that the result does not depend on who answered
    first.

    Attributes:
        state: the global state the round started from.
        sites: the sites whose reply was added.
    """

    def __init__(self, job: JobConfig, method: Method, state: GlobalState):
        self.job = job
        self.state = state
        self.server = method.server()
        self.uses_prototypes = method.uses_prototypes
        self.parameters = {name: array for name, array in state.model.items() if name in state.parameters}
        self._sums = Sums()
        self._counters: Arrays = {}
        self._first_buffers: Arrays | None = None
        self._class_sums = ClassSums.zeros(*state.prototypes.means.shape)
        self._samples = 0
        self.sites: dict[str, SiteRound] = {}
        self._scores: dict[str, Scores] = {}

    def check(self, reply: SiteReply) -> None:
        """Validate a reply against the global state.

        Raises:
            WireError: with the reason, naming the site.
        """
        try:
            self._check_header(reply)
            self._check_arrays("model", reply.model, {n: a.shape for n, a in self.state.model.items()})
            self._check_arrays("method payload", reply.payload, self.server.payload_spec(self.parameters))
            self.server.check_payload(reply.payload)
            self._check_prototypes(reply)
        except WireError as e:
            raise WireError(f"{reply.site}: {e}") from e

    def add(self, reply: SiteReply) -> None:
        """Add a reply that passed :meth:`check`."""
        contribution = Contribution(reply.site, reply.samples, reply.model, reply.payload)
        self.server.add(self._sums, contribution, self.parameters)
        self._add_buffers(reply)
        self._samples += reply.samples
        if reply.prototypes is not None:
            self._class_sums = self._class_sums + reply.prototypes
        if reply.scores is not None:
            self._scores[reply.site] = reply.scores
        self.sites[reply.site] = SiteRound(
            samples=reply.samples,
            shared_classes=self._shared_names(reply),
            bytes_up=reply.bytes_up,
            bytes_down=reply.bytes_down,
            **_report(reply.report),
        )

    def finish(self, num_sites: int, refused: Mapping[str, str], seconds: float = 0.0) -> GlobalState:
        """Return the global state after the round.

        Args:
            num_sites: sites of the federation, whether or not they took part.
            refused: sites whose reply did not count, with the reason.
            seconds: wall time of the round.

        Raises:
            WireError: no reply was added.
        """
        state = self.state
        if not self.sites:
            raise WireError(f"round {state.round + 1} has no usable reply")
        parameters, method_state = self.server.finish(self._sums, self.parameters, state.method, num_sites)
        model = {**state.model, **parameters, **self._buffers()}
        record = RoundRecord(round=state.round + 1, sites=self.sites, refused=dict(refused), seconds=seconds)
        history = state.history
        if self._scores:
            history = history.with_evaluation(evaluation(state.round, self._scores))
        return replace(
            state,
            model={name: value.astype(state.model[name].dtype) for name, value in model.items()},
            prototypes=state.prototypes.updated(self._class_sums),
            method=method_state,
            round=state.round + 1,
            accepted=state.accepted | dict.fromkeys(self.sites, state.round),
            history=history.with_round(record),
        )

    def _check_header(self, reply: SiteReply) -> None:
        if reply.round != self.state.round:
            raise WireError(f"the reply is for round {reply.round + 1}, not {self.state.round + 1}")
        if reply.site in self.sites:
            raise WireError("a second reply in the same round")
        if reply.samples < 1:
            raise WireError(f"the number of training images is {reply.samples}")

    def _check_arrays(self, what: str, arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
        for name in shapes.keys() ^ arrays.keys():
            raise WireError(f"the {what} {'lacks' if name in shapes else 'has an unexpected'} {name!r}")
        for name, shape in shapes.items():
            array = arrays[name]
            if array.shape != shape:
                raise WireError(f"the {what}'s {name!r} has shape {array.shape}, not {shape}")
            expected = self.state.model[name].dtype if name in self.state.model else np.dtype(np.float32)
            if array.dtype != expected:
                raise WireError(f"the {what}'s {name!r} has type {array.dtype}, not {expected}")
            self._check_size(f"the {what}'s {name!r}", array)

    def _check_size(self, what: str, array: np.ndarray) -> None:
        if array.dtype == np.float32:
            # Nearly always enough, at half the cost: a sum of squares in float32 that is finite and far from the bound.
            flat = torch.from_numpy(np.ascontiguousarray(array)).view(-1)
            if float(torch.dot(flat, flat)) < min(self.job.federation.max_norm**2 / 2, _LARGE):
                return
        # The norm in float64 is finite only if every entry is, so one pass checks both.
        values = torch.from_numpy(array) if np.issubdtype(array.dtype, np.floating) else torch.tensor(array).double()
        norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
        if not np.isfinite(norm):
            raise WireError(f"{what} has NaN or infinite values")
        if norm > self.job.federation.max_norm:
            raise WireError(f"{what} has norm {norm:.3g}, over federation.max_norm {self.job.federation.max_norm:.3g}")

    def _check_prototypes(self, reply: SiteReply) -> None:
        shared = reply.prototypes
        if shared is None:
            return
        if not self.uses_prototypes:
            raise WireError(f"prototypes, which {self.job.method.name} does not use")
        if shared.sums.shape != self.state.prototypes.means.shape:
            expected = tuple(self.state.prototypes.means.shape)
            raise WireError(f"the prototypes have shape {tuple(shared.sums.shape)}, not {expected}")
        if bool((shared.counts < 0).any()) or int(shared.counts.sum()) > reply.samples:
            raise WireError("the class counts of the prototypes are negative or exceed the training images")
        if bool((shared.sums[shared.counts == 0] != 0).any()):
            raise WireError("a prototype sum without a count")
        means = shared.sums / shared.counts.clamp(min=1)[:, None]
        self._check_size("the prototype mean", means.numpy())

    def _add_buffers(self, reply: SiteReply) -> None:
        buffers = {name: array for name, array in reply.model.items() if name not in self.state.parameters}
        if self._first_buffers is None:
            self._first_buffers = buffers
        floats = {name: array for name, array in buffers.items() if np.issubdtype(array.dtype, np.floating)}
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


def evaluation(round_number: int, site_scores: Mapping[str, Scores]) -> Evaluation:
    """Return the evaluation of the global model after ``round_number`` rounds."""
    pool, sites = pooled(dict(site_scores))
    return Evaluation(
        round=round_number,
        sites={site: Score.of(score) for site, score in sorted(site_scores.items())},
        pooled=Score.of(pool) if pool else None,
        pooled_sites=sites,
    )


def _report(report: Mapping[str, object]) -> dict[str, object]:
    """Keep the fields of a site's report that the results schema knows."""
    return {name: report[name] for name in ("seconds", "terms", "images_total", "images_skipped") if name in report}
