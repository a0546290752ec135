"""GroupNorm in the place of BatchNorm."""

import pytest
import torch
from torch import nn

from fedmr_med import models
from fedmr_med.models.norm import batch_norm_names, groups_of
from tests.helpers.errors import raises


def build(name: str, **options: object) -> models.Network:
    torch.manual_seed(0)
    return models.build(name, num_classes=10, **options)


@pytest.mark.parametrize("name", ["narrow_resnet", "resnet18", "efficientnet_b0"])
def test_group_norm_takes_the_place_of_every_batch_norm(name: str) -> None:
    network, plain = build(name, norm="group").train(), build(name)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert not list(network.buffers())
    parameters, before = dict(network.named_parameters()), dict(plain.named_parameters())
    assert parameters.keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in parameters.items())
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    nn.functional.cross_entropy(network(images)[1], torch.arange(4)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_what_an_image_gives_does_not_depend_on_the_others_of_its_batch() -> None:
    network = build("narrow_resnet", norm="group").train()
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network(images)[1][:1], network(images[:1])[1], rtol=1e-4, atol=1e-5)


def test_groups_are_equal_and_not_too_small() -> None:
    assert {channels: groups_of(channels) for channels in (16, 24, 64, 160, 512, 7)} == {
        16: 2,
        24: 2,
        64: 8,
        160: 16,
        512: 32,
        7: 1,
    }


def test_a_network_without_batch_norm_and_an_unknown_norm_are_refused() -> None:
    with raises("config.value", "model.options"):
        build("small_cnn", norm="group")
    with raises("config.value", "model.options.norm"):
        build("narrow_resnet", norm="layer")


def test_the_arrays_of_batch_norm_are_known_by_name() -> None:
    network = build("narrow_resnet")
    names = batch_norm_names(network.state_dict())
    expected = {
        f"{layer}.{name}"
        for layer, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for name in module.state_dict()
    }
    assert names == expected
    assert "bn1.weight" in names
    assert batch_norm_names(build("small_cnn").state_dict()) == frozenset()
