"""EfficientNet-b0: equal to FLamby's baseline, and its two heads and options."""

from pathlib import Path

import pytest
import torch
from efficientnet_pytorch import EfficientNet
from torch import Tensor, nn

from fedmr_med import models
from tests.helpers.errors import raises

torch.set_num_threads(1)


class FlambyBaseline(nn.Module):
    """What FLamby's ``Baseline(pretrained=False)`` is made of; FLamby itself is not a dependency."""

    def __init__(self) -> None:
        super().__init__()
        self.base_model = EfficientNet.from_name("efficientnet-b0")
        self.base_model._fc = nn.Linear(1280, 8)

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.base_model(image)
        return logits


@pytest.fixture(scope="module")
def baseline() -> FlambyBaseline:
    torch.manual_seed(3)
    network = FlambyBaseline().train()
    with torch.no_grad():
        network(torch.randn(4, 3, 64, 64))  # so that the running statistics are not those of a fresh network
    return network


def from_flamby(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the state of FLamby's ``Baseline`` to that of our network with the ``flamby`` head."""
    return {name.replace("base_model._fc.", "classifier."): value for name, value in state.items()}


@pytest.mark.parametrize("size", [200, 64])
def test_equals_flambys_baseline_with_its_weights(baseline, size):
    ours = models.build("efficientnet_b0", num_classes=8)
    ours.load_state_dict(from_flamby(baseline.state_dict()))
    x = torch.randn(2, 3, size, size)
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x)[1], baseline.eval()(x), rtol=1e-5, atol=1e-6)


def test_a_training_forward_equals_flambys_too(baseline):
    ours = models.build("efficientnet_b0", num_classes=8)
    ours.load_state_dict(from_flamby(baseline.state_dict()))
    x = torch.randn(4, 3, 48, 48)
    outputs = []
    for network in (ours.train(), baseline.train()):
        torch.manual_seed(0)  # dropout and drop-connect
        outputs.append(network(x))
    # BatchNorm of four small images lets last bits grow.
    torch.testing.assert_close(outputs[0][1], outputs[1], rtol=0, atol=1e-3)
    for name, tensor in from_flamby(baseline.state_dict()).items():
        torch.testing.assert_close(tensor, ours.state_dict()[name], rtol=1e-3, atol=1e-4)


def test_the_flamby_feature_is_taken_before_dropout():
    network = models.build("efficientnet_b0", num_classes=8, dropout=0.999, drop_connect=0.0).train()
    features, logits = network(torch.randn(4, 3, 32, 32))
    assert (features != 0).float().mean() > 0.9
    # Nearly every feature is dropped on the way to the classifier.
    assert not torch.allclose(logits, network.classifier(features))


def test_the_fedmr_head_is_linear_from_the_pooled_output():
    network = models.build("efficientnet_b0", num_classes=8, head="fedmr").eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        pooled = network.base_model(x).flatten(1)
        features, logits = network(x)
        expected = pooled @ network.neck.weight.T + network.neck.bias
    torch.testing.assert_close(features, expected)
    torch.testing.assert_close(logits, expected @ network.classifier.weight.T + network.classifier.bias)


@pytest.mark.parametrize(("options", "momentum"), [({}, 0.01), ({"bn_momentum": 0.1}, 0.1)])
def test_batchnorm_momentum_is_an_option(options, momentum):
    network = models.build("efficientnet_b0", num_classes=8, **options)
    found = {m.momentum for m in network.modules() if isinstance(m, nn.BatchNorm2d)}
    assert list(found) == [pytest.approx(momentum)]


def test_pretrained_weights_fill_the_backbone_and_not_the_classifier(tmp_path: Path):
    torch.manual_seed(5)
    weights = EfficientNet.from_name("efficientnet-b0").state_dict()
    torch.save(weights, tmp_path / "b0.pth")
    for head in ("flamby", "fedmr"):
        torch.manual_seed(6)
        network = models.build("efficientnet_b0", num_classes=8, head=head, pretrained=str(tmp_path / "b0.pth"))
        torch.manual_seed(6)
        plain = models.build("efficientnet_b0", num_classes=8, head=head)
        for name, tensor in network.base_model.state_dict().items():
            assert torch.equal(tensor, weights[name]), name
        assert torch.equal(network.classifier.weight, plain.classifier.weight)


def test_pretrained_files_that_do_not_fit_are_refused(tmp_path: Path):
    def build(path: Path, **options: int) -> None:
        models.build("efficientnet_b0", num_classes=8, pretrained=str(path), **options)

    weights = EfficientNet.from_name("efficientnet-b0").state_dict()
    with raises("file.missing", "model.options.pretrained"):
        build(tmp_path / "nowhere.pth")

    damaged = tmp_path / "damaged.pth"
    torch.save(weights, damaged)
    damaged.write_bytes(damaged.read_bytes()[:100_000])
    with raises("file.unreadable", "model.options.pretrained"):
        build(damaged)

    torch.save([1, 2], tmp_path / "list.pth")
    with raises("checkpoint.form", "model.options.pretrained"):
        build(tmp_path / "list.pth")

    torch.save({k: v for k, v in weights.items() if k != "_bn1.weight"}, tmp_path / "short.pth")
    with raises("checkpoint.other-model", "model.options.pretrained"):
        build(tmp_path / "short.pth")

    torch.save(weights, tmp_path / "b0.pth")
    with raises("checkpoint.other-model", "model.options.pretrained"):
        build(tmp_path / "b0.pth", in_channels=1)


def test_an_unknown_head_is_refused():
    with raises("config.unknown-name", "model.options.head"):
        models.build("efficientnet_b0", num_classes=8, head="moon")
