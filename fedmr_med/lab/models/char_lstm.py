"""The network for Shakespeare: the next character from the last 80."""

from typing import cast

from torch import Tensor, nn

from fedmr_med.network import Network

# LEAF's 80 characters and one symbol for everything else, see fedmr_med.lab.datasets.shakespeare.
VOCABULARY_SIZE = 81


class CharLSTM(Network):
    """A small stacked LSTM over character indices, as LEAF's (Caldas et al., 2018).

    The feature is the last hidden state of the last layer; ``in_channels`` is not used.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        *,
        vocabulary: int = VOCABULARY_SIZE,
        embedding: int = 8,
        hidden: int = 256,
        layers: int = 2,
    ) -> None:
        super().__init__()
        self.feature_size = hidden
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.classifier = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of character indices (n, length) of any integer type."""
        output, _ = self.lstm(self.embedding(x.long()))
        features = cast(Tensor, output[:, -1])
        return features, self.classifier(features)
