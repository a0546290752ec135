"""The classifier of a network alone, over features that are there already."""

from torch import Tensor

from fedmr_med.network import Network


class ClassifierOnly(Network):
    """What is left to train of a network whose backbone is frozen: its input is the feature.

    Args:
        whole: the network; its classifier is shared, by the same name.
    """

    def __init__(self, whole: Network):
        super().__init__()
        self.feature_size = whole.feature_size
        self.classifier = whole.classifier

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (n, feature_size) themselves, and their logits."""
        return x, self.classifier(x)
