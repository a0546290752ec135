"""The network of a job without one: a survey of what the sites hold."""

from torch import Tensor, nn

from fedmr_med.network import Network


class NoModel(Network):
    """A network without weights, which looks at no image."""

    def __init__(self, num_classes: int, in_channels: int):
        super().__init__()
        self.feature_size = 1
        self.classifier = nn.Identity()  # type: ignore[assignment]  # there is nothing to classify by

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Refuse: nothing is asked of it."""
        raise RuntimeError("a survey has no network")
