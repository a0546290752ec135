"""Fully connected layers on the pixels, a tenth of a small convolutional network's time, for studies on a CPU."""

from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med.network import Network


class MLP(Network):
    """Two hidden layers with rectifiers.

    Args:
        hidden: units of the first layer.
        feature_size: units of the second layer, whose output is the feature.
    """

    def __init__(
        self, num_classes: int, in_channels: int, *, image_size: int = 28, hidden: int = 64, feature_size: int = 64
    ) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.first = nn.Linear(in_channels * image_size**2, hidden)
        self.second = nn.Linear(hidden, feature_size)
        self.classifier = nn.Linear(feature_size, num_classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of images (n, in_channels, image_size, image_size)."""
        features = F.relu(self.second(F.relu(self.first(x.flatten(1)))))
        return features, self.classifier(features)
