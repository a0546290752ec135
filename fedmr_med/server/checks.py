"""What the server holds a reply against before any of it counts: form, values, and what is plausible."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedmr_med import methods
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.model_sums import vectors
from fedmr_med.wire.forms import ReplyForm
from fedmr_med.wire.messages import SiteReply

GROWTH = 2
"""A site's number of images may grow up to so many times the first one it told in a chain."""

_FLOAT32 = np.dtype(np.float32)
_LARGE = 1e37  # a sum of squares in float32 can be trusted below it


@dataclass(frozen=True)
class Registered:
    """The numbers of images that each site told first in a chain: what its later ones are held against.

    A site's weight in the model and in the pooled scores is what it says of itself, so it must not be able to say
    more from round to round.

    Attributes:
        most: what nobody may exceed, ``federation.max_samples``.
    """

    train: Mapping[str, int]
    test: Mapping[str, int]
    most: int
    validates: bool = False

    @classmethod
    def of(cls, history: History, job: JobConfig) -> "Registered":
        """Look the numbers up."""
        train: dict[str, int] = {}
        test: dict[str, int] = {}
        for record in history.rounds:
            for site, part in record.sites.items():
                train.setdefault(site, part.samples)
        for evaluation in history.evaluations:
            for site, score in evaluation.sites.items():
                test.setdefault(site, score.samples)
        return cls(train, test, job.federation.max_samples, job.train.validation > 0)

    def check(self, site: str, samples: int) -> None:
        """Raise WireError if a site tells of no training images, or of too many."""
        if samples < 1:
            raise WireError(f"the number of training images is {samples}", code="wire.range", key="samples")
        self._check("training", samples, self.train.get(site))

    def check_scores(self, site: str, scores: Scores | None) -> None:
        """Raise WireError if a site scores with too many test images."""
        if scores is None:
            return
        self._check("test", scores.samples, self.test.get(site))
        if scores.validation is not None:
            if not self.validates:
                raise WireError(
                    "scores of validation images, of which the job has none", code="wire.unasked", key="scores"
                )
            self._check("validation", scores.validation.samples, None)

    def _check(self, what: str, now: int, first: int | None) -> None:
        if now > self.most:
            raise WireError(
                f"it reports {now} {what} images, over federation.max_samples {self.most}",
                code="wire.range",
                key="federation.max_samples",
            )
        if first is not None and now > GROWTH * first:
            raise WireError(
                f"it reports {now} {what} images, and started the chain with {first}; start a new chain",
                code="wire.changed-count",
                key=what,
            )


class ReplyCheck:
    """Validates the replies of one round against the job and the global state that the round starts from.

    Whether samples add up to what a site shares was seen when its reply was read.
    """

    def __init__(self, job: JobConfig, state: GlobalState, form: ReplyForm):
        method = methods.build(job.method)
        self._job, self._state = job, state
        self._server = method.server()
        self._uses_prototypes = method.uses_prototypes
        self._registered = Registered.of(state.history, job)
        self._form = form

    def check(self, reply: SiteReply) -> None:
        """Validate a reply as a whole.

        Raises:
            WireError: with the reason, naming the site.
        """
        try:
            self._check_header(reply)
            self._form.check(reply)
            if not self._job.federation.sums_models:
                self._check_model(reply)
            self._check_prototypes(reply)
        except WireError as e:
            raise e.at(reply.site) from e

    def _check_model(self, reply: SiteReply) -> None:
        self._registered.check(reply.site, reply.samples)
        self._check_values("model", reply.model)
        self._check_statistics(reply.model)
        self._check_values("method payload", reply.payload)
        self._server.check_payload(reply.payload)

    def _check_header(self, reply: SiteReply) -> None:
        if reply.round != self._state.round:
            raise WireError(f"the reply is for round {reply.round + 1}, not {self._state.round + 1}", code="wire.round")
        self._registered.check_scores(reply.site, reply.scores)

    def _check_values(self, what: str, arrays: Arrays) -> None:
        if not self._clearly_small(arrays.values()):
            for name, array in arrays.items():
                self._check_size(f"the {what}'s {name!r}", array, name)

    def _clearly_small(self, arrays: Collection[np.ndarray]) -> bool:
        """Whether sums of squares show that all values are finite and far below the bound, as they nearly always do."""
        bound = min(self._job.federation.max_norm**2 / 2, _LARGE)
        floats = vectors([array for array in arrays if array.dtype == _FLOAT32])
        others = vectors([array for array in arrays if array.dtype != _FLOAT32])
        with np.errstate(over="ignore", invalid="ignore"):
            return all(np.dot(values, values) < bound for values in (*floats, *(v.astype(np.float64) for v in others)))

    def _check_size(self, what: str, array: np.ndarray, key: str) -> None:
        # The norm in float64 is finite only if every entry is, so one pass checks both.
        norm = float(np.linalg.norm(array.astype(np.float64)))
        most = self._job.federation.max_norm
        if not np.isfinite(norm):
            raise WireError(f"{what} has NaN or infinite values", code="wire.not-finite", key=key)
        if norm > most:
            raise WireError(
                f"{what} has norm {norm:.3g}, over federation.max_norm {most:.3g}",
                code="wire.norm",
                key="federation.max_norm",
            )

    def _check_statistics(self, model: Arrays) -> None:
        """Refuse BatchNorm statistics that no data has: averaged, they would make the honest sites' networks fail."""
        for name in model.keys() - self._state.parameters:
            if name.endswith(("running_var", "num_batches_tracked")) and (model[name] < 0).any():
                raise WireError(f"the model's {name!r} is negative", code="wire.range", key=name)

    def _check_prototypes(self, reply: SiteReply) -> None:
        shared = reply.prototypes
        if shared is None:
            return
        if not self._uses_prototypes:
            raise WireError(
                f"prototypes, which {self._job.method.name} does not use", code="wire.unasked", key="prototypes"
            )
        if int(shared.counts.sum()) > reply.samples and self._job.federation.private is None:
            raise WireError(
                "the class counts of the prototypes exceed the training images", code="wire.counts", key="prototypes"
            )
        means = (shared.sums / shared.counts.clamp(min=1)[:, None]).numpy()
        if not self._clearly_small([means]):
            self._check_size("the prototype mean", means, "prototypes")
