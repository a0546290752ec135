"""FedMR (Fan et al., TMLR 2023): manifold reshaping of the features by class prototypes.

FedAvg whose client half adds the losses of :mod:`fedmr_med.methods.reshaping` to the classification loss. The global
prototypes that they need are made by the aggregation from what the sites agree to share. ``variant: paper`` is the
printed method on FedAvg's server; ``anchored`` and ``replayed``, the default, have slowly moving prototypes and server
momentum.
"""

from typing import Literal

from fedmr_med.config import ServerConfig
from fedmr_med.methods.base import ClassifierOptions, Method, register
from fedmr_med.methods.reshaping import ReshapingOptions, Variant


class FedMROptions(ReshapingOptions, ClassifierOptions):
    """Options of FedMR: those of manifold reshaping, replayed by default, and of every method's classifier."""

    variant: Variant = "replayed"


@register
class FedMR(Method):
    """Classification loss + mu1 * intra-class loss + mu2 * anchor or inter-class loss + replay * replay loss."""

    name = "fedmr"
    per_sample = True
    options_type = FedMROptions
    options: FedMROptions

    @property
    def reshaping(self) -> ReshapingOptions:
        """The method's own options."""
        return self.options

    @property
    def server_optimizer(self) -> ServerConfig:
        """Momentum 0.5 with anchors: slow prototypes and server momentum belong together."""
        anchored = self.options.anchored
        return ServerConfig(optimizer="sgd", momentum=0.5) if anchored else ServerConfig()

    @property
    def variant(self) -> str:
        """``replayed``, ``anchored`` or ``paper``."""
        return self.options.variant

    @property
    def head_exchange(self) -> Literal["none", "last"]:
        """Once, after the last round, with anchors: the sites share class sums anyway."""
        return "last" if self.options.anchored else "none"
