"""WideResNet (Zagoruyko & Komodakis, 2016), the paper's network for CIFAR100."""

from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med.network import Network


class WideBlock(nn.Module):
    """BatchNorm-ReLU-convolution twice, with dropout between; convolutions have a bias, as in the paper's network."""

    def __init__(self, in_width: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_width)
        self.conv1 = nn.Conv2d(in_width, width, 3, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_width != width:
            self.shortcut = nn.Sequential(nn.Conv2d(in_width, width, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, in_width, h, w) to (n, width, h / stride, w / stride)."""
        out: Tensor = self.dropout(self.conv1(F.relu(self.bn1(x), inplace=True)))
        out = self.conv2(F.relu(self.bn2(out), inplace=True))
        shortcut: Tensor = self.shortcut(x)
        return out + shortcut


class WideResNet28x10(Network):
    """28 layers, 10 times the usual width: 640 features; 36.56M numbers on the wire for 100 classes."""

    def __init__(self, num_classes: int, in_channels: int, *, dropout: float = 0.3) -> None:
        super().__init__()
        blocks_per_stage = (28 - 4) // 6
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1)
        in_width = 16
        layers = []
        for width, first_stride in ((160, 1), (320, 2), (640, 2)):
            for stride in [first_stride] + [1] * (blocks_per_stage - 1):
                layers.append(WideBlock(in_width, width, stride, dropout))
                in_width = width
        self.blocks = nn.Sequential(*layers)
        self.bn1 = nn.BatchNorm2d(in_width)
        self.feature_size = in_width
        self.classifier = nn.Linear(in_width, num_classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of images (n, in_channels, h, w)."""
        x = F.relu(self.bn1(self.blocks(self.conv1(x))), inplace=True)
        features = x.mean(dim=(2, 3))
        return features, self.classifier(features)
