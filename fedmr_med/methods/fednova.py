"""FedNova (Wang et al., NeurIPS 2020): local updates are divided by their number of steps before they are averaged.

a_k = effective local steps, d_k = (w - w_k) / a_k, and w <- w - (sum_k p_k a_k) * sum_k p_k d_k with
p_k = n_k / sum n over the participants. Equal a_k give FedAvg.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from fedmr_med.arrays import Arrays, Forms
from fedmr_med.errors import WireError
from fedmr_med.methods.base import ClientHalf, Contribution, LocalResult, Method, ServerHalf, Sums, register

STEPS = "effective_steps"


class FedNovaClient(ClientHalf):
    """FedAvg's local training; the reply says how many steps it took."""

    def finish(self, trained: Mapping[str, Tensor]) -> LocalResult:
        """Send a_k."""
        return LocalResult(payload={STEPS: np.asarray(self.local.effective_steps, dtype=np.float32)})


class FedNovaServer(ServerHalf):
    """The normalised average."""

    def payload_forms(self, parameters: Arrays) -> Forms:
        """One number, a_k."""
        return {STEPS: ((), np.dtype(np.float32))}

    def check_payload(self, payload: Arrays) -> None:
        """Refuse fewer than one step: dividing by it would blow the update up."""
        if payload[STEPS] < 0.99:  # a single step is 1 up to rounding
            raise WireError(f"{STEPS} is {float(payload[STEPS]):.3g}, below one", code="wire.range", key=STEPS)

    def add(self, sums: Sums, contribution: Contribution, parameters: Arrays) -> None:
        """Add n_k (w_k - w) / a_k and the numbers that go with it.

        The differences and not the models: a late update is far smaller than the weights, which would swallow it.
        """
        steps = float(contribution.payload[STEPS])
        update = {name: contribution.model[name] - array for name, array in parameters.items()}
        sums.add("updates", update, contribution.samples / steps)
        sums.add_number("samples * steps", contribution.samples * steps)
        sums.add_number("samples", contribution.samples)

    def finish(self, sums: Sums, parameters: Arrays, state: Arrays, num_sites: int) -> tuple[Arrays, Arrays]:
        """Take sum p_k a_k steps in the direction of the mean normalised update."""
        samples = sums.numbers["samples"]
        update = sums.mean("updates", samples)  # sum p_k (w_k - w) / a_k
        steps = sums.numbers["samples * steps"] / samples  # sum p_k a_k
        return {name: w + steps * update[name] for name, w in parameters.items()}, state


@register
class FedNova(Method):
    """FedAvg of updates normalised by their steps."""

    name = "fednova"
    per_sample = True
    client_half = FedNovaClient
    server_half = FedNovaServer
