"""Manifold reshaping: the two losses of FedMR as an addition to the objective of any method."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedmr_med.losses import inter_class_loss, intra_class_loss
from fedmr_med.methods.local import Batch, LocalRound
from fedmr_med.schema import Strict


class ReshapingOptions(Strict):
    """Options of manifold reshaping.

    Attributes:
        mu1, mu2: weights of the intra-class and the inter-class loss.
        terms: ``both``, or one of the two losses alone (the paper's ablation).
        scale: scale of the intra-class loss, see :func:`fedmr_med.losses.intra_class_loss`.
        negatives: the "other" classes of the inter-class loss: ``all`` with a prototype, or only the
            ``local`` ones, as the paper's formula is printed.
        lite: samples of a mini-batch that the inter-class loss uses (FedMR Lite); None uses all.
        margin: False gives the margin-free variant.
        prototypes: ``mean`` of the shared features, or ``one_hot`` (a negative result of the paper).
    """

    mu1: float = Field(0.01, ge=0)
    mu2: float = Field(0.0001, ge=0)
    terms: Literal["both", "intra", "inter"] = "both"
    scale: Literal["released", "paper"] = "released"
    negatives: Literal["all", "local"] = "all"
    lite: int | None = Field(None, ge=0)
    margin: bool = True
    prototypes: Literal["mean", "one_hot"] = "mean"

    @property
    def needs_prototypes(self) -> bool:
        """Whether the sites are asked for class sums: an inter-class loss that counts needs them, unless one-hot."""
        counts = self.terms != "intra" and self.mu2 > 0 and self.lite != 0
        return counts and self.prototypes == "mean"


class ManifoldReshaping:
    """The two losses of FedMR for one local round."""

    def __init__(self, options: ReshapingOptions, local: LocalRound):
        self.options = options
        self.generator = local.generator
        device = local.local_classes.device
        if options.prototypes == "one_hot":
            classes, size = local.prototypes.means.shape
            self.means = torch.eye(classes, size, device=device)
            self.available = torch.ones(classes, dtype=torch.bool, device=device)
        else:
            self.means = local.prototypes.means.to(device)
            self.available = local.prototypes.available.to(device)
        self.negatives = local.local_classes if options.negatives == "local" else None

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return mu1 * intra and mu2 * inter."""
        options, terms = self.options, {}
        if options.terms in ("both", "intra"):
            intra = intra_class_loss(batch.features, batch.labels, scale=options.scale)
            terms["intra"] = options.mu1 * intra
        if options.terms in ("both", "inter"):
            inter = inter_class_loss(
                batch.features,
                batch.labels,
                self.means,
                available=self.available,
                negatives=self.negatives,
                lite=options.lite,
                generator=self.generator,
                margin=options.margin,
            )
            terms["inter"] = options.mu2 * inter
        return terms
