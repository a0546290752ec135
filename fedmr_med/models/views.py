"""The feature of an image as the mean over its mirror images: a steadier one, at as many times the cost."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from fedmr_med.network import Network

_HEIGHT, _WIDTH = -2, -1
FLIPS: tuple[tuple[int, ...], ...] = ((), (_WIDTH,), (_HEIGHT,), (_HEIGHT, _WIDTH))
"""The axes along which an image is mirrored, one entry per view."""


class AveragedViews(Network):
    """A network whose features in evaluation mode are the mean over several views of each image.

    In training mode it is the network itself: mirror images are then a matter of augmentation.

    Args:
        body: the network; its classifier moves to this one, so that it keeps its name.
        flips: one view each, by the axes along which it is mirrored.
    """

    def __init__(self, body: Network, flips: Iterable[tuple[int, ...]] = FLIPS):
        super().__init__()
        self.feature_size = body.feature_size
        self.classifier = body.classifier
        body.classifier = nn.Identity()  # type: ignore[assignment]  # its place is taken by the one above
        self.body = body
        self.flips = tuple(flips)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of images (n, channels, h, w)."""
        if self.training:
            features, dropped = self.body(x)
            return features, self.classifier(dropped)
        features = torch.stack([self.body(x.flip(axes) if axes else x)[0] for axes in self.flips]).mean(0)
        return features, self.classifier(features)
