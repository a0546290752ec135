"""SCAFFOLD (Karimireddy et al., ICML 2020): control variates correct each site's gradients for its own drift.

With c_k the control of site k and c that of the server, a site adds c - c_k to every gradient. Then
c_k' = c_k - c - (w_k - w) / (M lr) (the authors' option II), where M are the effective local steps: momentum makes a
step count for up to ten. The server averages models as FedAvg does and moves c by |S| / N times the participants' mean
change of control, both means weighted by their images. With sites of equal size this is the authors' rule.

A site keeps c_k, as large as the model; it sends c_k' - c_k and receives c, so that the wire carries twice the model
each way.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from fedmr_med.arrays import Arrays, Forms, forms_of
from fedmr_med.errors import ConfigError
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
from fedmr_med.methods.vectors import combine, inner_product, to_arrays, to_tensors, with_prefix, without_prefix

CONTROL, CHANGES, PARTICIPANTS = "c", "changes", "participants"


class ScaffoldClient(ClientHalf):
    """Classification loss + <w_k, c - c_k>, whose gradient is the correction."""

    def __init__(self, options: Options, local: LocalRound):
        super().__init__(options, local)
        if local.lr == 0:
            raise ConfigError(
                "train.lr: scaffold divides by it; it must not be 0.", code="config.value", key="train.lr"
            )
        self.control = to_tensors(CONTROL, local.client_state, local.received)
        global_control = to_tensors(CONTROL, local.server_state, local.received)
        self.correction = combine(self.control, -1, global_control)

    def penalties(self) -> dict[str, Tensor]:
        """The gradient correction."""
        return {"control": -inner_product(self.parameters, self.correction)}

    def finish(self, trained: Mapping[str, Tensor]) -> LocalResult:
        """Keep the new c_k; send its change."""
        moved = combine(trained, -1, self.local.received)
        control = combine(self.correction, -1 / (self.local.effective_steps * self.local.lr), moved)
        change = combine(control, -1, self.control)
        return LocalResult(payload=to_arrays(change), state=with_prefix(CONTROL, to_arrays(control)))


class ScaffoldServer(ServerHalf):
    """FedAvg's server half, with the control c as state. The payload has the names of the parameters."""

    def initial_state(self, parameters: Arrays) -> Arrays:
        """No control yet."""
        return with_prefix(CONTROL, {name: np.zeros_like(array) for name, array in parameters.items()})

    def payload_forms(self, parameters: Arrays) -> Forms:
        """The change of c_k, by parameter."""
        return forms_of(parameters)

    def add(self, sums: Sums, contribution: Contribution, parameters: Arrays) -> None:
        """Add one participant and its change of control."""
        super().add(sums, contribution, parameters)
        sums.add(CHANGES, contribution.payload, contribution.samples)
        sums.add_number(PARTICIPANTS, 1)

    def finish(self, sums: Sums, parameters: Arrays, state: Arrays, num_sites: int) -> tuple[Arrays, Arrays]:
        """As FedAvg; and move c on by the participants' changes."""
        new, state = super().finish(sums, parameters, state, num_sites)
        changes = sums.mean(CHANGES, sums.numbers["samples"])
        present = sums.numbers[PARTICIPANTS] / num_sites
        before = without_prefix(CONTROL, state)
        control = {name: (before[name] + present * changes[name]).astype(w.dtype) for name, w in parameters.items()}
        return new, state | with_prefix(CONTROL, control)


@register
class Scaffold(Method):
    """Stochastic controlled averaging."""

    name = "scaffold"
    per_sample = True
    client_half = ScaffoldClient
    server_half = ScaffoldServer
    keeps_state = True
    exact_wire = True
