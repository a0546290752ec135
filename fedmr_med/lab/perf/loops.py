"""FedMR's two losses as plain loops over classes and pairs of classes, the way their formulas read.

They are what :mod:`fedmr_med.losses` is compared with, in speed and, by a test, in value.
"""

import torch
from torch import Tensor

from fedmr_med.losses import EPSILON
from fedmr_med.methods.base import Batch, ClientHalf, LocalRound
from fedmr_med.methods.reshaping import ReshapingOptions


def intra_class_loop(features: Tensor, labels: Tensor) -> Tensor:
    """Return the intra-class loss in the ``released`` scale, class by class, by (d, d) correlation matrices."""
    total, samples = features.sum() * 0, 0
    d = features.shape[1]
    for c in torch.unique(labels):
        own = features[labels == c]
        if len(own) < 2:
            continue
        standardised = (own - own.mean(0)) / (own.var(0) + EPSILON).sqrt()
        correlation = standardised.T @ standardised
        off_diagonal = correlation - torch.diag(correlation.diagonal())
        total = total + off_diagonal.square().sum() / (d * (d - 1))
        samples += len(own)
    return total / max(samples, 1)


def inter_class_loop(features: Tensor, labels: Tensor, prototypes: Tensor, available: Tensor) -> Tensor:
    """Return the inter-class loss, pair of classes by pair of classes."""
    total, pairs = features.sum() * 0, 0
    for i in torch.unique(labels):
        if not available[i]:
            continue
        own = features[labels == i]
        to_own = (own - prototypes[i]).norm(dim=1)
        for j in range(len(prototypes)):
            if j == i or not available[j]:
                continue
            total = total + (to_own - (own - prototypes[j]).norm(dim=1)).relu().mean()
            pairs += 1
    return total / max(pairs, 1)


class LoopClient(ClientHalf):
    """The client half of FedMR with the losses above."""

    options: ReshapingOptions

    def __init__(self, options: ReshapingOptions, local: LocalRound):
        super().__init__(options, local)
        self.prototypes = local.prototypes

    def objective(self, batch: Batch) -> dict[str, Tensor]:
        """Add mu1 * intra and mu2 * inter."""
        means, available = self.prototypes.means, self.prototypes.available
        intra = intra_class_loop(batch.features, batch.labels)
        inter = inter_class_loop(batch.features, batch.labels, means, available)
        return super().objective(batch) | {"intra": self.options.mu1 * intra, "inter": self.options.mu2 * inter}
