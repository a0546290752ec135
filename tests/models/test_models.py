"""Every network behind the one interface, and the numbers of parameters the paper reports."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmr_med import models
from tests.helpers.errors import raises

torch.set_num_threads(1)

# name, options, feature size, classes, input
NETWORKS = [
    ("efficientnet_b0", {}, 1280, 8, (2, 3, 64, 64)),
    ("efficientnet_b0", {"head": "fedmr"}, 640, 8, (2, 3, 33, 40)),
    ("efficientnet_b0", {"image_size": None}, 1280, 8, (2, 1, 20, 20)),
    ("efficientnet_lite0", {}, 1280, 8, (2, 3, 64, 64)),
    ("resnet18", {}, 512, 10, (2, 3, 16, 16)),
    ("resnet18", {}, 512, 10, (2, 1, 28, 28)),
    ("narrow_resnet", {}, 64, 10, (2, 3, 32, 32)),
    ("narrow_resnet", {"width": 8, "blocks": 2}, 32, 10, (2, 1, 28, 28)),
    ("small_cnn", {}, 128, 10, (2, 1, 28, 28)),
    ("small_cnn", {"feature_size": 84, "width": 6}, 84, 10, (2, 3, 48, 48)),
    ("small_cnn", {}, 128, 10, (2, 3, 10, 37)),
    ("mlp", {}, 64, 10, (2, 1, 28, 28)),
    ("mlp", {"image_size": 32, "feature_size": 20}, 20, 10, (2, 3, 32, 32)),
    ("wide_resnet28_10", {}, 640, 100, (1, 3, 8, 8)),
    ("char_lstm", {}, 256, 80, (3, 80)),
]


def batch(shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if len(shape) == 2:
        return torch.randint(0, 81, shape, generator=generator, dtype=torch.uint8)
    return torch.randn(shape, generator=generator)


def build(name: str, classes: int, shape: tuple[int, ...], **options: object) -> models.Network:
    torch.manual_seed(0)
    return models.build(name, num_classes=classes, in_channels=shape[1] if len(shape) == 4 else 3, **options)


@pytest.mark.parametrize(("name", "options", "size", "classes", "shape"), NETWORKS)
def test_the_classifier_is_linear_in_the_returned_features(name, options, size, classes, shape):
    network = build(name, classes, shape, **options).eval()
    with torch.no_grad():
        features, logits = network(batch(shape))
    assert network.feature_size == size
    assert features.shape == (shape[0], size)
    assert logits.shape == (shape[0], classes)
    assert isinstance(network.classifier, nn.Linear)
    torch.testing.assert_close(logits, network.classifier(features))


@pytest.mark.parametrize("name", ["efficientnet_b0", "narrow_resnet", "small_cnn", "char_lstm"])
def test_a_training_step_reaches_every_parameter(name):
    shape = (4, 80) if name == "char_lstm" else (4, 3, 32, 32)
    network = build(name, 10, shape).train()
    _, logits = network(batch(shape))
    nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    untouched = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert untouched == []


@pytest.mark.parametrize(
    ("name", "options", "classes", "parameters", "on_the_wire"),
    [
        ("efficientnet_b0", {"head": "flamby"}, 8, 4_017_796, 4.060),
        ("efficientnet_b0", {"head": "fedmr"}, 8, 4_832_516, 4.875),
        ("resnet18", {}, 10, 11_173_962, 11.184),
        ("wide_resnet28_10", {}, 100, 36_546_980, 36.565),
    ],
)
def test_sizes_are_those_of_the_paper(name, options, classes, parameters, on_the_wire):
    with torch.device("meta"):
        network = models.build(name, num_classes=classes, **options)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert round(sum(t.numel() for t in network.state_dict().values()) / 1e6, 3) == on_the_wire


def test_the_prototypes_of_the_paper_have_their_size():
    sizes = {("resnet18", 10): 0.005, ("wide_resnet28_10", 100): 0.064}
    for (name, classes), millions in sizes.items():
        with torch.device("meta"):
            network = models.build(name, num_classes=classes)
        assert round(network.feature_size * classes / 1e6, 3) == millions


def test_small_cnn_has_no_buffers_and_narrow_resnet_has_batchnorm():
    assert list(models.build("small_cnn", num_classes=10).buffers()) == []
    assert any(isinstance(m, nn.BatchNorm2d) for m in models.build("narrow_resnet", num_classes=10).modules())


@pytest.mark.parametrize("name", ["efficientnet_b0", "small_cnn", "char_lstm"])
def test_the_seed_decides_the_weights(name):
    def weights(seed: int) -> dict[str, np.ndarray]:
        torch.manual_seed(seed)
        return models.state_arrays(models.build(name, num_classes=8))

    first, again, other = weights(1), weights(1), weights(2)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first["classifier.weight"], other["classifier.weight"])


def test_unknown_names_and_options_are_refused_with_what_exists():
    with raises("config.unknown-name", "model.name"):
        models.build("resnet50", num_classes=10)
    with raises("config.unknown-key", "model.options.depth"):
        models.build("small_cnn", num_classes=10, depth=3)
    with raises("config.unknown-key", "model.options.width"):
        models.build("resnet18", num_classes=10, width=3)


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("efficientnet_b0", {"dropout": 2.0}, "model.options"),
        ("efficientnet_b0", {"drop_connect": -1}, "model.options.drop_connect"),
        ("efficientnet_b0", {"bn_momentum": 0}, "model.options.bn_momentum"),
        ("narrow_resnet", {"blocks": 0}, "model.options"),
        ("narrow_resnet", {"width": "wide"}, "model.options"),
        ("small_cnn", {"feature_size": "many"}, "model.options"),
    ],
)
def test_values_that_make_no_network_are_refused(name, options, key):
    with raises("config.value", key):
        models.build(name, num_classes=10, **options)


def test_arrays_survive_the_round_trip_exactly():
    source = build("narrow_resnet", 10, (2, 3, 8, 8)).train()
    source(batch((4, 3, 8, 8)))
    target = models.build("narrow_resnet", num_classes=10)
    arrays = models.state_arrays(source)
    models.load_arrays(target, arrays)
    for key, array in models.state_arrays(target).items():
        assert np.array_equal(array, arrays[key]), key
        assert array.dtype == arrays[key].dtype


def test_arrays_are_copies_and_in_c_order_whatever_the_memory_format():
    network = build("small_cnn", 10, (2, 3, 8, 8)).to(memory_format=torch.channels_last)
    arrays = models.state_arrays(network)
    before = arrays["conv1.weight"].copy()
    with torch.no_grad():
        network.conv1.weight.zero_()
    assert np.array_equal(arrays["conv1.weight"], before)
    assert arrays["conv1.weight"].flags.c_contiguous
    models.load_arrays(network, arrays)
    arrays["conv1.weight"][:] = 7
    assert np.array_equal(models.state_arrays(network)["conv1.weight"], before)


def test_half_precision_arrays_are_cast_to_the_networks_type():
    network = build("small_cnn", 10, (2, 3, 8, 8))
    models.load_arrays(network, {k: a.astype(np.float16) for k, a in models.state_arrays(network).items()})
    assert network.conv1.weight.dtype == torch.float32


def test_states_of_other_models_are_refused_and_change_nothing():
    network = build("small_cnn", 10, (2, 3, 8, 8))
    good = models.state_arrays(network)
    wrong = {name: array + 1 for name, array in good.items()}
    cases = {
        ("checkpoint.other-model", "conv2.bias"): {k: v for k, v in wrong.items() if k != "conv2.bias"},
        ("checkpoint.other-model", "extra"): wrong | {"extra": np.zeros(1)},
        ("checkpoint.other-model", "classifier.weight"): wrong | {"classifier.weight": np.zeros((8, 128))},
        ("checkpoint.form", "conv1.bias"): wrong | {"conv1.bias": np.full(16, "x")},
    }
    for fault, arrays in cases.items():
        with raises(*fault):
            models.load_arrays(network, arrays)
    assert all(np.array_equal(array, good[name]) for name, array in models.state_arrays(network).items())


def test_parameters_and_buffers_are_told_apart():
    network = models.build("narrow_resnet", num_classes=10)
    names = models.parameter_names(network)
    buffers = set(models.state_arrays(network)) - names
    assert "classifier.weight" in names
    assert {name.rsplit(".", 1)[1] for name in buffers} == {"running_mean", "running_var", "num_batches_tracked"}


def test_narrow_resnet_learns_a_small_task():
    torch.manual_seed(0)
    x, y = torch.randn(32, 1, 12, 12), torch.arange(32) % 4
    x += y.float()[:, None, None, None]
    network = models.build("narrow_resnet", num_classes=4, in_channels=1, width=8)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(network(x)[1], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
