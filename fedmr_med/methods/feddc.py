"""FedDC (Gao et al., CVPR 2022): local drift is decoupled from the local model and corrected.

With omega_k and a_k = alpha / omega_k as in :mod:`fedmr_med.methods.feddyn`, a site minimises its classification
loss + a_k / 2 * ||w_k + h_k - w||^2 + <w_k, c / omega_k - c_k>. Then, with D = w_k - w, h_k += D and
c_k' = c_k - c / omega_k - D / (M lr), where M are the effective local steps: momentum makes a step count for up
to ten, and with their plain number the control would be as much too large. The server sets
c = mean over all sites of omega_k c_k', and w as FedDyn does. Gradients are clipped as in the authors' code;
without that, drift and control can drive each other to infinity.

A site keeps h_k and c_k, twice the model; it sends c_k' - c_k and receives c, so that the wire carries twice the model
each way. The server keeps the sum of n_k c_k, which grows by n_k (c_k' - c_k), and divides it by the mean n it knows at
the moment. A mean of omega_k (c_k' - c_k) would keep every round's omega for ever, and with it the error of the first
round, in which nobody's n is known.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from fedmr_med.arrays import Arrays, Forms, forms_of
from fedmr_med.errors import ConfigError
from fedmr_med.methods.base import Contribution, LocalResult, LocalRound, Sums, register
from fedmr_med.methods.feddyn import DRIFT, FedDyn, FedDynClient, FedDynOptions, FedDynServer, relative_size
from fedmr_med.methods.vectors import (
    combine,
    inner_product,
    squared_distance,
    to_arrays,
    to_tensors,
    with_prefix,
    without_prefix,
)

CONTROL, CONTROLS, SITES = "c", "controls", "sites"


class FedDCClient(FedDynClient):
    """Classification loss + a_k / 2 * ||w_k + h_k - w||^2 + <w_k, c / omega_k - c_k>."""

    def __init__(self, options: FedDynOptions, local: LocalRound):
        super().__init__(options, local)
        if local.lr == 0:
            raise ConfigError("train.lr: feddc divides by it; it must not be 0.", code="config.value", key="train.lr")
        self.control = to_tensors(CONTROL, local.client_state, local.received)
        global_control = to_tensors(CONTROL, local.server_state, local.received)
        self.anchor = combine(local.received, -1, self.drift)
        self.correction = combine(self.control, -1 / relative_size(local), global_control)

    def penalties(self) -> dict[str, Tensor]:
        """The drift penalty and the gradient correction."""
        drift = self.alpha / 2 * squared_distance(self.parameters, self.anchor)
        control = -inner_product(self.parameters, self.correction)
        return {"drift": drift, "control": control}

    def finish(self, trained: Mapping[str, Tensor]) -> LocalResult:
        """Keep the new h_k and c_k; send the change of c_k."""
        moved = combine(trained, -1, self.local.received)
        drift = combine(self.drift, 1, moved)
        control = combine(self.correction, -1 / (self.local.effective_steps * self.local.lr), moved)
        change = combine(control, -1, self.control)
        kept = with_prefix(DRIFT, to_arrays(drift)) | with_prefix(CONTROL, to_arrays(control))
        return LocalResult(payload=to_arrays(change), state=kept)


class FedDCServer(FedDynServer):
    """FedDyn's server half, with the global control c. The payload has the names of the parameters.

    State: FedDyn's, the sum of n_k c_k over all sites by parameter, and the number of sites.
    """

    def initial_state(self, parameters: Arrays) -> Arrays:
        """No drift and no control yet."""
        zeros = {name: np.zeros_like(array) for name, array in parameters.items()}
        return super().initial_state(parameters) | with_prefix(CONTROLS, zeros) | {SITES: np.asarray(1)}

    def client_view(self, state: Arrays) -> Arrays:
        """The mean number of images, if it is known, and c."""
        total = (self.mean_samples(state) or 1.0) * int(state[SITES])
        control = {name: (s / total).astype(s.dtype) for name, s in without_prefix(CONTROLS, state).items()}
        return super().client_view(state) | with_prefix(CONTROL, control)

    def payload_forms(self, parameters: Arrays) -> Forms:
        """The change of c_k, by parameter."""
        return forms_of(parameters)

    def add(self, sums: Sums, contribution: Contribution, parameters: Arrays) -> None:
        """Add one participant and its change of control."""
        super().add(sums, contribution, parameters)
        sums.add(CONTROLS, contribution.payload, contribution.samples)

    def finish(self, sums: Sums, parameters: Arrays, state: Arrays, num_sites: int) -> tuple[Arrays, Arrays]:
        """As FedDyn; and move the sum of the controls on by the participants' changes."""
        new, state = super().finish(sums, parameters, state, num_sites)
        change = sums.mean(CONTROLS, 1)
        before = without_prefix(CONTROLS, state)
        controls = {name: (before[name] + change[name]).astype(w.dtype) for name, w in parameters.items()}
        return new, state | with_prefix(CONTROLS, controls) | {SITES: np.asarray(num_sites)}


@register
class FedDC(FedDyn):
    """Federated learning with local drift decoupling and correction; ``alpha`` weighs the drift penalty."""

    name = "feddc"
    client_half = FedDCClient
    server_half = FedDCServer
