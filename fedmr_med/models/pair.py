"""Two networks as one, so that a federation compares them on the same images."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fedmr_med.network import Network

FIRST, SECOND = "first", "second"


class PairNetwork(Network):
    """Two networks, by name and options, that see the same images; the features are the logits of the second."""

    def __init__(self, num_classes: int, in_channels: int, *, first: Mapping[str, Any], second: Mapping[str, Any]):
        from fedmr_med.models import build  # which knows this network by its name

        super().__init__()
        self.first, self.second = (
            build(told["name"], num_classes=num_classes, in_channels=in_channels, **told.get("options", {}))
            for told in (first, second)
        )
        self.feature_size = num_classes

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]  # not a module of its own
        """The classifier of the first network."""
        return self.first.classifier

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (n, C) of the second network, and those of the first."""
        return self.second(x)[1], self.first(x)[1]
