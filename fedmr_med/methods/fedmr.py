"""FedMR (Fan et al., TMLR 2023): manifold reshaping by an intra-class and an inter-class loss.

FedAvg whose client half adds the two losses of :mod:`fedmr_med.methods.reshaping` to the classification loss;
the server half is FedAvg's. The global prototypes that the inter-class loss needs are made by the aggregation
from what the sites agree to share.
"""

from fedmr_med.methods.base import Method, register
from fedmr_med.methods.reshaping import ReshapingOptions


@register
class FedMR(Method):
    """Classification loss + mu1 * intra-class loss + mu2 * inter-class loss."""

    name = "fedmr"
    options_type = ReshapingOptions
    options: ReshapingOptions

    @property
    def reshaping(self) -> ReshapingOptions:
        """The method's own options."""
        return self.options
