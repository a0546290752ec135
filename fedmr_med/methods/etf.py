"""A classifier that is the same everywhere and never moves: the simplex of FedETF and FedGELA.

FedETF (Li et al., ICCV 2023) and FedGELA (Fan et al., NeurIPS 2023) fix the classifier to a simplex equiangular tight
frame, sqrt(C / (C - 1)) U (I - 11^T / C) with orthonormal columns U (d, C), and classify features of unit length. With
nothing to learn, no site can bend it towards the classes it holds. It follows from the job's seed and never travels.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med.errors import ConfigError
from fedmr_med.network import Network

START_SCALE = 10.0


def simplex(classes: int, size: int, seed: int) -> Tensor:
    """Return ``classes`` unit vectors (C, d) of equal angles, whose pairwise cosines are -1 / (C - 1).

    Raises:
        ConfigError: there are fewer dimensions than classes.
    """
    if size < classes:
        raise ConfigError(
            f"method.options.classifier: etf needs features of at least {classes} numbers for {classes} classes, "
            f"and the network has {size}.",
            code="config.too-few-features",
            key="method.options.classifier",
        )
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(size, classes, generator=generator, dtype=torch.float64)).Q
    centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
    vertices: Tensor = (classes / (classes - 1)) ** 0.5 * basis @ centred
    return vertices.T.contiguous()


class EtfClassifier(nn.Module):
    """Logits: ``scale`` times the cosines between a feature and the vertices of a simplex. Only the scale is learnt."""

    directions: Tensor

    def __init__(self, classes: int, size: int, seed: int, dtype: torch.dtype):
        super().__init__()
        self.in_features, self.out_features = size, classes
        self.scale = nn.Parameter(torch.full((1,), START_SCALE, dtype=dtype))
        self.register_buffer("directions", simplex(classes, size, seed).to(dtype), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits (n, C) of features (n, d)."""
        return self.scale * F.linear(F.normalize(features, dim=1), self.directions)


class EtfNetwork(Network):
    """A network with a linear projection of its features, as FedETF has, and the fixed classifier behind it.

    The projection lets features point in every direction, which those behind a ReLU cannot.
    """

    def __init__(self, body: Network, seed: int):
        super().__init__()
        size, classes = body.feature_size, body.classifier.out_features
        dtype = next(body.parameters()).dtype
        self.feature_size = size
        self.projection = nn.Linear(size, size, dtype=dtype)
        self.classifier = EtfClassifier(classes, size, seed, dtype)  # type: ignore[assignment]
        self.body = body
        body.classifier = nn.Identity()  # type: ignore[assignment]  # its place is taken by the one above

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return projected features (n, d) and logits (n, C) of a batch."""
        features = self.projection(self.body(x)[0])
        return features, self.classifier(features)
