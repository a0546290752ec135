"""Networks of other packages behind our protocol."""

import pytest
import torch
from torch import nn

from fedmr_med import models
from fedmr_med.models import wrap
from fedmr_med.models.small_cnn import SmallCNN
from tests.helpers.errors import raises

X = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


class LikeTorchvision(nn.Module):
    """As in torchvision: features, pooling, and a classifier with dropout in front."""

    def __init__(self, num_classes: int = 8, dropout: float = 0.5):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(6, num_classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class LikeTimm(LikeTorchvision):
    """As in timm: a function drops out between pooling and the head."""

    def __init__(self, num_classes: int = 8):
        super().__init__(num_classes)
        self.classifier = nn.Linear(6, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = torch.flatten(self.avgpool(self.features(x)), 1)
        return self.classifier(nn.functional.dropout(pooled, 0.5, self.training))


class WithSoftmax(LikeTorchvision):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).softmax(1)


def densenet() -> nn.Module:
    from monai.networks.nets import DenseNet121

    return DenseNet121(spatial_dims=2, in_channels=3, out_channels=8, init_features=8, growth_rate=4)


def plain() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 16), nn.ReLU(), nn.Linear(16, 8))


@pytest.mark.parametrize("make", [densenet, plain, LikeTorchvision, LikeTimm])
def test_a_network_that_ends_in_one_linear_layer_is_split_there(make) -> None:
    torch.manual_seed(0)
    original = make().eval()
    torch.manual_seed(0)
    network = wrap(make()).eval()
    with torch.no_grad():
        features, logits = network(X)
        assert torch.equal(logits, original(X))
        assert torch.equal(logits, network.classifier(features))
    assert features.shape == (4, network.feature_size)
    names = set(network.state_dict())
    assert {"classifier.weight", "classifier.bias"} <= names, "where a closed-form head is put"
    assert models.parameter_names(network) == {name for name, _ in network.named_parameters()} <= names
    assert len(names) == len(original.state_dict()), "nothing is sent twice"


def test_the_feature_is_the_one_before_the_dropout() -> None:
    for network in (wrap(LikeTorchvision()), wrap(LikeTimm(), feature_layer="avgpool")):
        network.train()
        features, logits = network(X)
        assert (features != 0).all(), "nothing is dropped from it"
        assert not torch.allclose(logits, network.classifier(features)), "but from what the classifier sees"
        logits.sum().backward()
        assert all(parameter.grad is not None for parameter in network.parameters())


def test_a_network_of_ours_stays_itself() -> None:
    network = SmallCNN(8, 3)
    assert wrap(network) is network


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: wrap(nn.Conv2d(3, 8, 1)), ("model.no-classifier", "model")),
        (lambda: wrap(nn.Linear(3, 8)), ("model.raw-features", "model")),
        (lambda: wrap(LikeTimm(), feature_layer="pool"), ("config.unknown-name", "feature_layer")),
        (lambda: wrap(WithSoftmax())(X), ("model.last-layer", "model")),
        (lambda: wrap(nn.Sequential(nn.Flatten(2), nn.Linear(1024, 8)))(X), ("model.last-layer", "model")),
        (lambda: wrap(LikeTimm(), feature_layer="features").eval()(X), ("model.feature-layer", "feature_layer")),
    ],
)
def test_what_cannot_be_split_is_refused_with_the_reason(make, fault: tuple[str, ...]) -> None:
    with raises(*fault):
        make()


def test_a_job_names_a_class_by_its_dotted_path() -> None:
    options = {"spatial_dims": 2, "init_features": 8, "growth_rate": 4, "block_config": [1, 1]}
    network = models.build("monai.networks.nets.DenseNet", num_classes=5, in_channels=1, **options)
    assert network.classifier.out_features == 5
    assert network(X[:, :1])[0].shape == (4, network.feature_size)
    mine = models.build(f"{__name__}.LikeTimm", num_classes=3, feature_layer="avgpool")
    assert mine(X)[1].shape == (4, 3)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("os.system", ("registry.wrong-kind", "model.name")),
        ("builtins.dict", ("registry.wrong-kind", "model.name")),
        ("monai.networks.nets.DenseNet999", ("registry.does-not-load", "model.name")),
        ("no.such.Module", ("registry.does-not-load", "model.name")),
        ("torch.nn.Linear", ("config.value", "model.options")),
    ],
)
def test_a_path_to_anything_else_is_refused(name: str, fault: tuple[str, ...]) -> None:
    with raises(*fault):
        models.build(name, num_classes=2)


def test_a_network_with_other_outputs_than_classes_is_refused() -> None:
    with raises("model.outputs", "model"):
        models.build(f"{__name__}.Fixed", num_classes=3)


class Fixed(LikeTimm):
    def __init__(self) -> None:
        super().__init__(8)
