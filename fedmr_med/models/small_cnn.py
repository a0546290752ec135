"""A LeNet-like network without BatchNorm, for studies on a CPU."""

from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med.network import Network


class SmallCNN(Network):
    """Two 5x5 convolutions, two fully connected layers; pooled adaptively, so any image of 10 px and more fits."""

    def __init__(self, num_classes: int, in_channels: int, *, width: int = 16, feature_size: int = 128) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.conv1 = nn.Conv2d(in_channels, width, 5, padding=2)
        self.conv2 = nn.Conv2d(width, 2 * width, 5)
        self.pool = nn.AdaptiveMaxPool2d(5)
        self.hidden = nn.Linear(2 * width * 25, feature_size)
        self.classifier = nn.Linear(feature_size, num_classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of images (n, in_channels, h, w)."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2), inplace=True)
        x = F.relu(self.pool(self.conv2(x)), inplace=True)
        features = F.relu(self.hidden(x.flatten(1)))
        return features, self.classifier(features)
