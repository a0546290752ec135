"""FedProc (Mu et al., FGCS 2023): a contrastive loss draws features to the global prototype of their class.

The prototypes are FedMR's: shared class sums, subject to each site's policy, averaged by the aggregation; but of
features of unit length, as in the authors' code.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from fedmr_med.methods.base import Batch, ClientHalf, LocalRound, Method, Options, register


class FedProcOptions(Options):
    """Options of FedProc.

    Attributes:
        mu: weight of the contrastive loss (lambda in the notation of the method).
        schedule: ``constant``: classification + mu * contrast; ``original``: t/T * classification
            + (1 - t/T) * contrast in round t of the chain's T, without ``mu``.
        average: prototypes are means of features of ``unit`` length, or of features ``as_they_are``, as FedMR's losses
            need them where they are added.
    """

    mu: float = Field(0.001, ge=0)
    schedule: Literal["constant", "original"] = "constant"
    average: Literal["unit", "as_they_are"] = "unit"


class FedProcClient(ClientHalf):
    """Classification loss and the softmax cross-entropy between normalised features and prototypes."""

    options: FedProcOptions

    def __init__(self, options: FedProcOptions, local: LocalRound):
        super().__init__(options, local)
        device = local.local_classes.device
        self.available = local.prototypes.available.to(device)
        self.directions = F.normalize(local.prototypes.means.to(device), dim=1)

    def objective(self, batch: Batch) -> dict[str, Tensor]:
        """Add the contrastive loss, as the schedule says."""
        terms = super().objective(batch)
        contrast, known = self._contrast(batch)
        if self.options.schedule == "constant":
            return terms | {"contrast": self.options.mu * contrast}
        # A sample without a prototype of its class, as all are in the first round, keeps its classification loss.
        rest = 1 - self.local.round / self.local.rounds
        return terms | {"classification": (1 - rest * known) * batch.classification, "contrast": rest * contrast}

    def _contrast(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the contrastive loss of the batch and the share of its samples that take part.

        A class without a prototype takes no part, neither as own class nor as other; such samples count as 0.
        """
        features = F.normalize(batch.exact_features, dim=1)
        similarity = features @ self.directions.to(features).T
        similarity = similarity.masked_fill(~self.available, torch.finfo(similarity.dtype).min)
        own = F.log_softmax(similarity, dim=1).gather(1, batch.labels[:, None]).squeeze(1)
        known = self.available[batch.labels].to(own)
        return -(own * known).mean(), known.mean()


@register
class FedProc(Method):
    """FedAvg plus a contrastive loss against the global prototypes."""

    name = "fedproc"
    per_sample = True
    options_type = FedProcOptions
    client_half = FedProcClient

    @property
    def uses_prototypes(self) -> bool:
        """The contrastive loss needs shared prototypes."""
        return True

    @property
    def unit_prototypes(self) -> bool:
        """As the options say, unless FedMR's losses use the prototypes too."""
        also_used = self.reshaping is not None and self.reshaping.needs_prototypes
        return self.options.average == "unit" and not also_used
