"""The network of FLARE's hello-pt."""

import torch
from torch import nn


class SimpleNetwork(nn.Module):
    """Two convolutions and three linear layers for CIFAR-10."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.hidden = nn.Sequential(nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU())
        self.classifier = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        logits: torch.Tensor = self.classifier(self.hidden(self.convolutions(x).flatten(1)))
        return logits
