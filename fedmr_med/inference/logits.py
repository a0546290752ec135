"""A network as other tools want it: logits out of images."""

import torch
from torch import nn

from fedmr_med.network import Network


class Logits(nn.Module):
    """A network of this toolkit as one whose output is the logits alone."""

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, C) of images (n, channels, h, w)."""
        logits: torch.Tensor = self.network(x)[1]
        return logits
