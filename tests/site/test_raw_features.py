"""A site refuses statistics of features that are the input itself, however the network hides that."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedmr_med import models
from fedmr_med.models import wrap
from fedmr_med.network import Network
from fedmr_med.prototypes import ClassSums
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
STRAIGHT = {
    "hidden": nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 16), nn.Linear(16, CLASSES)),
    "normalised": nn.Sequential(
        nn.Flatten(), nn.Linear(PIXELS, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, CLASSES)
    ),
    "convolution": nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(2 * PIXELS, CLASSES)),
}
DEEP = {
    "hidden": nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 4), nn.ReLU(), nn.Linear(4, CLASSES)),
    "convolution": nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * PIXELS, CLASSES)
    ),
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


class WithOnePixel(nn.Module):
    """A hidden layer, and one number of the input beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(PIXELS, 16)
        self.classifier = nn.Linear(17, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        output: Tensor = self.classifier(torch.cat([self.hidden(flat).relu(), flat[:, :1]], dim=1))
        return output


def attack(network: Network, patients: Tensor) -> Tensor:
    """Return what the server reads of the mean input (9,) in one class mean and the model that it knows."""
    mean = ClassSums.from_features(network(patients)[0], torch.zeros(len(patients), dtype=torch.int64), 1).sums[0]
    units = torch.eye(PIXELS).view(PIXELS, 1, EDGE, EDGE)
    start = network(0 * units[:1])[0][0].detach().double()
    slopes = (network(units)[0].detach().double() - start).T
    return torch.linalg.lstsq(slopes, (mean / len(patients) - start)[:, None]).solution[:, 0].float()


@pytest.mark.parametrize("name", STRAIGHT)
def test_the_attack_reads_the_mean_input_behind_a_linear_layer_which_is_refused(name: str) -> None:
    patients = torch.randn(20, 1, EDGE, EDGE, generator=torch.Generator().manual_seed(1))
    network = wrap(STRAIGHT[name]).eval()
    assert torch.allclose(attack(network, patients), patients.mean(0).flatten(), atol=1e-3)
    with raises("model.raw-features", "model"):
        check_not_raw(network, patients)


def test_behind_a_rectifier_the_attack_reads_nothing() -> None:
    patients = torch.randn(20, 1, EDGE, EDGE, generator=torch.Generator().manual_seed(1))
    assert not torch.allclose(
        attack(wrap(copy.deepcopy(DEEP["convolution"])).eval(), patients), patients.mean(0).flatten(), atol=0.05
    )


def test_weights_with_which_a_rectifier_never_bends_are_found() -> None:
    network = wrap(copy.deepcopy(DEEP["hidden"])).eval()
    with torch.no_grad():
        network.get_parameter("body.1.bias").add_(1e4)
    with raises("model.raw-features"):
        check_not_raw(network, torch.randn(1, 1, EDGE, EDGE))


def test_one_raw_number_among_the_features_is_found() -> None:
    with raises("model.raw-features"):
        check_not_raw(wrap(WithOnePixel()).eval(), torch.randn(1, 1, EDGE, EDGE))


def test_dead_and_constant_features_are_no_matter() -> None:
    network = wrap(copy.deepcopy(DEEP["hidden"])).eval()
    with torch.no_grad():
        network.get_parameter("body.1.weight")[0] = 0
        network.get_parameter("body.1.bias")[1] = -1e5
    check_not_raw(network, torch.randn(1, 1, EDGE, EDGE))


@pytest.mark.parametrize("name", ["small_cnn", "narrow_resnet", "resnet18", "efficientnet_b0", "efficientnet_lite0"])
def test_the_networks_of_this_package_pass(name: str) -> None:
    torch.manual_seed(0)
    check_not_raw(models.build(name, num_classes=3).eval(), torch.randn(1, 3, 32, 32))


@pytest.mark.parametrize("name", DEEP)
def test_features_that_mix_the_input_pass(name: str) -> None:
    check_not_raw(wrap(DEEP[name]).eval(), torch.randn(2, 1, EDGE, EDGE))


def test_a_site_sends_no_prototypes_of_raw_input_and_says_why(tmp_path: Path) -> None:
    assert Federation(job("fedmr"), tmp_path / "deep", Tiny).round()[0].prototypes is not None
    with raises("model.raw-features", "model"):
        Federation(job("fedmr"), tmp_path / "raw", Raw).round()


def test_a_method_without_prototypes_may_train_a_linear_model(tmp_path: Path) -> None:
    Federation(job("fedavg"), tmp_path, Raw).round()
