"""MOON (Li et al., CVPR 2021): features stay near the global model's and away from the site's previous model's.

The previous model, the one this site trained in its last accepted round, never leaves the site. Both models
run in evaluation mode, as in the authors' code: they see running statistics and no dropout, draw no random
number and leave the trained network's BatchNorm alone.
"""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med.methods.base import Batch, ClientHalf, LocalResult, LocalRound, Method, Options, register
from fedmr_med.methods.local import Frozen
from fedmr_med.network import Network, load_arrays, state_arrays


class MoonOptions(Options):
    """Options of MOON.

    Attributes:
        mu: weight of the contrastive loss.
        temperature: by which cosines are divided.
        projection: length of the feature behind an extra projection head (256 in the original); None compares
            the feature that all methods share, as the FedMR paper does.
    """

    mu: float = Field(0.1, ge=0)
    temperature: float = Field(0.5, gt=0)
    projection: int | None = Field(None, ge=1)


class ProjectedNetwork(Network):
    """A network with the projection head of the original: d -> d -> ``size``, then the classifier."""

    def __init__(self, body: Network, size: int):
        super().__init__()
        self.feature_size = size
        self.classifier = nn.Linear(size, body.classifier.out_features)
        self.projection = nn.Sequential(
            nn.Linear(body.feature_size, body.feature_size), nn.ReLU(), nn.Linear(body.feature_size, size)
        )
        self.body = body
        body.classifier = nn.Identity()  # type: ignore[assignment]  # its place is taken by the one above

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return projected features (n, size) and logits of a batch."""
        features = self.projection(self.body(x)[0])
        return features, self.classifier(features)


class MoonClient(ClientHalf):
    """Classification loss + mu * cross-entropy over [cos(z, z_global), cos(z, z_previous)] / temperature, target 0.

    In the first round of a site there is no previous model; the cross-entropy over one candidate is 0.
    """

    options: MoonOptions

    def __init__(self, options: MoonOptions, local: LocalRound):
        super().__init__(options, local)
        self.others = [local.received_model]
        if local.client_state:
            previous = Frozen(local.network)
            load_arrays(previous.network, local.client_state)
            self.others.append(previous)

    def objective(self, batch: Batch) -> dict[str, Tensor]:
        """Add the contrastive loss."""
        features = batch.exact_features
        cosines = [F.cosine_similarity(features, other(batch)[0].to(features.dtype), dim=1) for other in self.others]
        logits = torch.stack(cosines, dim=1) / self.options.temperature
        contrast = F.cross_entropy(logits, torch.zeros_like(batch.labels))
        return super().objective(batch) | {"contrast": self.options.mu * contrast}

    def finish(self, trained: Mapping[str, Tensor]) -> LocalResult:
        """Keep the trained model, buffers included."""
        return LocalResult(state=state_arrays(self.local.network))


@register
class Moon(Method):
    """FedAvg plus model-contrastive learning."""

    name = "moon"
    per_sample = True
    options_type = MoonOptions
    client_half = MoonClient
    keeps_state = True
    options: MoonOptions

    def adapt(self, network: Network) -> Network:
        """Add the projection head if asked for."""
        size = self.options.projection
        return super().adapt(network if size is None else ProjectedNetwork(network, size))
