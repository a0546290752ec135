"""FedDyn (Acar et al., ICLR 2021): dynamic regularisation by what each site drifted so far.

With omega_k = n_k / mean n and a_k = alpha / omega_k, a site minimises its classification loss
+ a_k / 2 * ||w_k - w||^2 + a_k * <w_k, h_k>, then h_k += w_k - w, which it keeps to itself. The server sets
w = unweighted mean of the participants' w_k + mean of h_k over all sites, participating or not.

The server knows the sum of all h_k without ever seeing one, because it grows by the participants' w_k - w. It
keeps the sum and not the mean, so that a site that joins late changes the mean as it should.

**The mean of n.** A site needs it in training, so it comes with the task: the mean over the sites that had a
reply accepted before, each with its latest n. Before the first accepted reply nobody's n is known, and
omega_k = 1 stands for sites of equal size. So omega is exact from the second round on with full participation,
and from the round after every site took part once otherwise; with ``mean_samples`` it is exact from the start.

**What is scored.** The authors' code scores the mean of the participants' models, never that plus the mean of h, from
which the next round starts: with a small alpha the server's rule is nearly momentum of 1, and what a round starts from
overshoots.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from fedmr_med.arrays import Arrays
from fedmr_med.methods.base import (
    ClientHalf,
    Contribution,
    LocalResult,
    LocalRound,
    Method,
    Options,
    ServerHalf,
    Sums,
    register,
)
from fedmr_med.methods.vectors import (
    combine,
    inner_product,
    squared_distance,
    to_arrays,
    to_tensors,
    with_prefix,
    without_prefix,
)

DRIFT, SAMPLES, MEAN_SAMPLES = "h", "samples", "mean_samples"


class FedDynOptions(Options):
    """Options of FedDyn.

    Attributes:
        alpha: weight of the regularisation.
        clip: largest norm of a local gradient, 10 as in the authors' code; None does not clip.
        mean_samples: mean number of training images per site, if it is known before the first round; None
            learns it from the replies.
        evaluate: the model that is scored and leaves: the ``mean`` of the participants' models, or the ``global`` one
            that the next round starts from.
    """

    alpha: float = Field(0.0001, ge=0)
    clip: float | None = Field(10.0, gt=0)
    mean_samples: float | None = Field(None, gt=0)
    evaluate: Literal["mean", "global"] = "mean"


def relative_size(local: LocalRound) -> float:
    """Return omega_k = n_k / mean n; 1 as long as the mean is not known."""
    return local.samples / float(local.server_state.get(MEAN_SAMPLES, local.samples))


class FedDynClient(ClientHalf):
    """Classification loss + a_k / 2 * ||w_k - w||^2 + a_k * <w_k, h_k>."""

    options: FedDynOptions

    def __init__(self, options: FedDynOptions, local: LocalRound):
        super().__init__(options, local)
        self.alpha = options.alpha / relative_size(local)
        self.drift = to_tensors(DRIFT, local.client_state, local.received)

    def penalties(self) -> dict[str, Tensor]:
        """The proximal and the linear term."""
        proximal = self.alpha / 2 * squared_distance(self.parameters, self.local.received)
        linear = self.alpha * inner_product(self.parameters, self.drift)
        return {"proximal": proximal, "linear": linear}

    def after_backward(self) -> None:
        """Clip the gradient, if the options say so."""
        if self.options.clip is not None:
            clip_grad_norm_(self.parameters.values(), self.options.clip)

    def finish(self, trained: Mapping[str, Tensor]) -> LocalResult:
        """Keep h_k + w_k - w."""
        drift = combine(self.drift, 1, combine(trained, -1, self.local.received))
        return LocalResult(state=with_prefix(DRIFT, to_arrays(drift)))


class FedDynServer(ServerHalf):
    """Unweighted mean of the participants + mean of h over all sites.

    State: the sum of h over all sites, by parameter, and the number of images of every site heard of.
    """

    options: FedDynOptions

    def initial_state(self, parameters: Arrays) -> Arrays:
        """No drift yet."""
        return with_prefix(DRIFT, {name: np.zeros_like(array) for name, array in parameters.items()})

    def client_view(self, state: Arrays) -> Arrays:
        """The mean number of images, if it is known; no single site's, and no drift."""
        mean = self.mean_samples(state)
        return {} if mean is None else {MEAN_SAMPLES: np.asarray(mean, dtype=np.float64)}

    def mean_samples(self, state: Arrays) -> float | None:
        """Return the mean number of images of a site; None as long as it is not known."""
        samples = [int(number) for number in without_prefix(SAMPLES, state).values()]
        return self.options.mean_samples or (sum(samples) / len(samples) if samples else None)

    def add(self, sums: Sums, contribution: Contribution, parameters: Arrays) -> None:
        """Add one participant, unweighted, and note its size."""
        sums.add("parameters", {name: contribution.model[name] for name in parameters}, 1)
        sums.add_number("participants", 1)
        sums.add_number(f"{SAMPLES}.{contribution.site}", contribution.samples)

    def finish(self, sums: Sums, parameters: Arrays, state: Arrays, num_sites: int) -> tuple[Arrays, Arrays]:
        """Move the sum of h on by the participants' drift, and add its mean over all sites to their mean."""
        participants = sums.numbers["participants"]
        mean = sums.mean("parameters", participants)
        before = without_prefix(DRIFT, state)
        drift = {name: before[name] + participants * (mean[name] - w) for name, w in parameters.items()}
        samples = {name: np.asarray(int(n)) for name, n in sums.numbers.items() if name.startswith(f"{SAMPLES}.")}
        kept = {name: total.astype(parameters[name].dtype) for name, total in drift.items()}
        new = {name: mean[name] + drift[name] / num_sites for name in parameters}
        return new, state | with_prefix(DRIFT, kept) | samples

    def averaged(self, parameters: Arrays, state: Arrays, num_sites: int) -> Arrays:
        """The mean of the participants, which is w without the mean of h, unless the options say otherwise."""
        if self.options.evaluate == "global":
            return {}
        return {name: parameters[name] - drift / num_sites for name, drift in without_prefix(DRIFT, state).items()}


@register
class FedDyn(Method):
    """Federated learning with dynamic regularisation."""

    name = "feddyn"
    per_sample = True
    options_type = FedDynOptions
    client_half = FedDynClient
    server_half = FedDynServer
    keeps_state = True
    exact_wire = True
    adds_up = False

    @property
    def variant(self) -> str | None:
        """Which model is scored, where it is not the authors' choice."""
        return None if self.options.evaluate == "mean" else "global model"
