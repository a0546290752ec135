"""Finding the features of any classifier."""

import copy

import pytest
import torch
from torch import nn

from fedmr_med.inference.predict import Logits
from fedmr_med.lab.flamby.probe import Probe
from fedmr_med.models import build
from tests.helpers.errors import raises
from tests.helpers.flamby_clients import model


def test_features_are_taken_before_the_dropout() -> None:
    probe = Probe(model()).train()
    x = torch.randn(6, 5)
    features, logits = probe(x)
    assert torch.equal(features, probe.model.body(x))  # type: ignore[operator]
    assert logits.shape == (6, 4)
    assert probe.feature_size == 6


@pytest.mark.parametrize("name", ["small_cnn", "resnet18", "efficientnet_b0"])
def test_features_are_those_that_our_networks_return(name: str) -> None:
    network = build(name, num_classes=5, in_channels=3).eval()
    x = torch.randn(2, 3, 32, 32)
    for ours, probed in zip(network(x), Probe(Logits(network)).eval()(x), strict=True):
        assert torch.equal(ours, probed)


def test_gradients_flow_through_the_features() -> None:
    probe = Probe(model())
    probe(torch.randn(6, 5))[0].sum().backward()
    assert probe.model.body[0].weight.grad is not None  # type: ignore[index, union-attr]


def test_no_hook_stays_on_the_model() -> None:
    probe = Probe(model())
    probe(torch.randn(6, 5))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in probe.modules())
    copy.deepcopy(probe)


def test_a_linear_layer_that_takes_no_part_is_named() -> None:
    unused = model()
    unused.extra = nn.Linear(2, 2)
    with raises("model.last-layer"):
        Probe(unused)(torch.randn(6, 5))
