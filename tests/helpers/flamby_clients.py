"""Small clients with FLamby's interface: data loaders over random data, each with some of the classes."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, FEATURES = 4, 6
# Real images of Fed-ISIC2019: the centres, and how many of each fold.
CENTERS = (1, 2, 3, 4, 5)
PER_CENTER = 60


class Classifier(nn.Module):
    """BatchNorm and dropout before the last linear layer, as in FLamby's EfficientNet."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, FEATURES), nn.BatchNorm1d(FEATURES), nn.ReLU())
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.dropout(self.body(x)))
        return output


def loaders(batch_size: int = 8) -> list[DataLoader[tuple[Tensor, ...]]]:
    """Three clients of different sizes; client 2 lacks classes 2 and 3, nobody but client 0 has class 3."""
    result = []
    for client, (size, classes) in enumerate([(30, 4), (21, 3), (18, 2)]):
        generator = torch.Generator().manual_seed(client)
        labels = torch.randint(classes, (size,), generator=generator)
        inputs = torch.randn(size, 5, generator=generator) + labels[:, None]
        result.append(DataLoader(TensorDataset(inputs, labels), batch_size=batch_size, shuffle=True))
    return result


def model() -> Classifier:
    torch.manual_seed(3)
    return Classifier()
