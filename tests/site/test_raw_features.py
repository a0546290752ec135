"""A site refuses statistics of features that are the input itself, however the network hides that."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedmr_med.models import wrap
from fedmr_med.network import Network
from fedmr_med.site.raw_features import check_not_raw
from tests.helpers.errors import raises
from tests.helpers.methods import CLASSES, EDGE, Federation, Tiny, job

PIXELS = EDGE * EDGE


class Shuffled(nn.Module):
    """The input in another order, scaled, and some of it twice."""

    def forward(self, x: Tensor) -> Tensor:
        return 3 * x[:, [4, 0, 2, 2, 8, 1]] - 1


LINEAR = {
    "linear": nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, CLASSES)),
    "normalised": nn.Sequential(nn.Flatten(), nn.BatchNorm1d(PIXELS), nn.Dropout(), nn.Linear(PIXELS, CLASSES)),
    "rectified": nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(PIXELS, CLASSES)),
    "shuffled": nn.Sequential(nn.Flatten(), Shuffled(), nn.Linear(6, CLASSES)),
}
DEEP = {
    "hidden": nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 4), nn.ReLU(), nn.Linear(4, CLASSES)),
    "convolution": nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(2 * PIXELS, CLASSES)),
}


class Raw(Network):
    """A linear model of the pixels, as a hospital gets it from a server."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_size = PIXELS
        self.body = nn.Flatten()
        self.classifier = nn.Linear(PIXELS, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        return features, self.classifier(features)


@pytest.mark.parametrize("name", LINEAR)
def test_raw_features_are_found_whatever_stands_before_the_classifier(name: str) -> None:
    with raises("model.raw-features", "model"):
        check_not_raw(wrap(LINEAR[name]).eval(), torch.randn(2, 1, EDGE, EDGE))


@pytest.mark.parametrize("name", DEEP)
def test_features_that_mix_the_input_pass(name: str) -> None:
    check_not_raw(wrap(DEEP[name]).eval(), torch.randn(2, 1, EDGE, EDGE))


def test_a_site_sends_no_prototypes_of_raw_input_and_says_why(tmp_path: Path) -> None:
    assert Federation(job("fedmr"), tmp_path / "deep", Tiny).round()[0].prototypes is not None
    with raises("model.raw-features", "model"):
        Federation(job("fedmr"), tmp_path / "raw", Raw).round()


def test_a_method_without_prototypes_may_train_a_linear_model(tmp_path: Path) -> None:
    Federation(job("fedavg"), tmp_path, Raw).round()
