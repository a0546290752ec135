"""FedProx (Li et al., MLSys 2020): a proximal term holds the local model near the global one."""

from pydantic import Field
from torch import Tensor

from fedmr_med.methods.base import ClientHalf, Method, Options, register
from fedmr_med.methods.vectors import squared_distance


class FedProxOptions(Options):
    """Options of FedProx.

    Attributes:
        mu: weight of the proximal term.
    """

    mu: float = Field(0.01, ge=0)


class FedProxClient(ClientHalf):
    """Classification loss + mu / 2 * ||w_k - w||^2."""

    options: FedProxOptions

    def penalties(self) -> dict[str, Tensor]:
        """The proximal term."""
        return {"proximal": self.options.mu / 2 * squared_distance(self.parameters, self.local.received)}


@register
class FedProx(Method):
    """FedAvg plus a proximal term."""

    name = "fedprox"
    per_sample = True
    options_type = FedProxOptions
    client_half = FedProxClient
