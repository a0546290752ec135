"""Residual networks for small images: ResNet18 as the paper uses it, and a narrow one for studies on a CPU."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med.network import Network


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a shortcut (He et al., 2016)."""

    def __init__(self, in_width: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_width, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_width != width:
            self.shortcut = nn.Sequential(nn.Conv2d(in_width, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, in_width, h, w) to (n, width, h / stride, w / stride)."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out)) + self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet(Network):
    """A 3x3 stride-1 first convolution, no max-pool, then stages of doubling width and halving resolution.

    Args:
        width: channels of the first stage.
        blocks: residual blocks of each stage. The feature is the average-pooled output of the last stage,
            ``width * 2 ** (stages - 1)`` long.
    """

    def __init__(self, num_classes: int, in_channels: int, *, width: int, blocks: Sequence[int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        stages = []
        in_width = width
        for stage, count in enumerate(blocks):
            out_width = width * 2**stage
            strides = [1 if stage == 0 else 2] + [1] * (count - 1)
            layers = []
            for stride in strides:
                layers.append(BasicBlock(in_width, out_width, stride))
                in_width = out_width
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.feature_size = in_width
        self.classifier = nn.Linear(in_width, num_classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of images (n, in_channels, h, w)."""
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        features = self.stages(x).mean(dim=(2, 3))
        return features, self.classifier(features)


def resnet18(num_classes: int, in_channels: int) -> ResNet:
    """Return the paper's ResNet18: 512 features; 11.18M numbers on the wire for 10 classes."""
    return ResNet(num_classes, in_channels, width=64, blocks=(2, 2, 2, 2))


def narrow_resnet(num_classes: int, in_channels: int, *, width: int = 16, blocks: int = 1) -> ResNet:
    """Return a ResNet of three stages with ``blocks`` blocks each: 4 * width features, about 80k parameters."""
    # Below 8 channels torch 2.13's strided 1x1 convolution corrupts memory in its backward pass (channels-last, CPU).
    if width < 8 or blocks < 1:
        raise ValueError("width must be at least 8 and blocks at least 1")
    return ResNet(num_classes, in_channels, width=width, blocks=(blocks,) * 3)
