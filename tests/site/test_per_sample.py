"""Gradients of single images: together the gradient of the batch, and each no longer than the clip."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedmr_med import methods, models
from fedmr_med.config import LossConfig, MethodConfig
from fedmr_med.methods.base import ClientHalf, LocalRound
from fedmr_med.models.job_network import ClassifierOnly
from fedmr_med.network import Network
from fedmr_med.prototypes import Prototypes
from fedmr_med.site import criterion
from fedmr_med.site.criterion import Criterion
from fedmr_med.site.private_training import clipped_sum

CLASSES, IMAGES = 4, 6
LOSS = criterion.build(LossConfig(), np.ones(CLASSES, dtype=np.int64))
WITHOUT_CHANCE = {"dropout": 0.0, "drop_connect": 0.0}
NETWORKS = {
    "small_cnn": {},
    "narrow_resnet": {"norm": "group"},
    "efficientnet_b0": {"norm": "group", **WITHOUT_CHANCE},
    "efficientnet_lite0": {"norm": "group", **WITHOUT_CHANCE},
}
METHODS = ("fedavg", "fedprox", "feddyn", "feddc", "fednova", "fedproc", "moon", "fedmr", "scaffold")


def network(name: str = "small_cnn") -> Network:
    torch.manual_seed(0)
    return models.build(name, num_classes=CLASSES, **NETWORKS[name]).double().train()


def batch(seed: int = 0, images: int = IMAGES) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.rand(images, 3, 32, 32, generator=generator, dtype=torch.float64),
        torch.arange(images) % CLASSES,
    )


def client(made: Network, method: str = "fedavg") -> ClientHalf:
    features = torch.rand(CLASSES, made.feature_size, generator=torch.Generator().manual_seed(1))
    local = LocalRound(
        network=made,
        received={name: parameter.detach().clone() for name, parameter in made.named_parameters()},
        prototypes=Prototypes(features, torch.ones(CLASSES, dtype=torch.bool), torch.zeros(CLASSES, dtype=torch.int64)),
        counts=torch.full((CLASSES,), 10),
        server_state={},
        client_state=models.state_arrays(made) if method == "moon" else {},
        samples=40,
        steps=3,
        lr=0.1,
        momentum=0.9,
        round=1,
        rounds=3,
        generator=torch.Generator(),
    )
    return methods.build(MethodConfig(name=method)).client(local)


def total(
    made: Network, half: ClientHalf, images: Tensor, labels: Tensor, clip: float, loss: Criterion = LOSS
) -> dict[str, Tensor]:
    return clipped_sum(made, half, loss, images, labels, torch.ones(len(labels), dtype=torch.float64), clip)


def length(gradient: dict[str, Tensor]) -> float:
    return float(torch.cat([g.flatten() for g in gradient.values()]).norm())


def assert_same(found: dict[str, Tensor], made: Network, factor: float, atol: float = 1e-9) -> None:
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(found[name], factor * parameter.grad, rtol=1e-6, atol=atol, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_without_a_clip_the_sum_is_the_gradient_of_the_batch(name: str) -> None:
    made, (images, labels) = network(name), batch()
    LOSS(made(images)[1], labels).backward()  # type: ignore[no-untyped-call]
    assert_same(total(made, client(made), images, labels, 1e9), made, IMAGES)


def test_the_same_holds_for_a_classifier_over_frozen_features() -> None:
    made = ClassifierOnly(network())
    features, labels = torch.rand(IMAGES, made.feature_size, dtype=torch.float64), torch.arange(IMAGES) % CLASSES
    LOSS(made(features)[1], labels).backward()  # type: ignore[no-untyped-call]
    assert_same(total(made, client(made), features, labels, 1e9), made, IMAGES)


def test_the_same_holds_for_the_focal_loss() -> None:
    focal = criterion.build(LossConfig(name="focal", class_weights="none"), np.ones(CLASSES, dtype=np.int64))
    made, (images, labels) = network(), batch()
    focal(made(images)[1], labels).backward()  # type: ignore[no-untyped-call]
    assert_same(total(made, client(made), images, labels, 1e9, focal), made, IMAGES, atol=1e-5)  # MONAI: float32


def test_more_images_than_fit_at_once_give_the_same_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    made, (images, labels) = network(), batch()
    whole = total(made, client(made), images, labels, 0.5)
    monkeypatch.setattr("fedmr_med.site.private_training._NUMBERS_AT_ONCE", 1)
    for name, gradient in total(made, client(made), images, labels, 0.5).items():
        torch.testing.assert_close(gradient, whole[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_sum_is_that_of_clipped_gradients_of_one_backward_pass_each(name: str) -> None:
    made, (images, labels) = network(name), batch()
    found = total(made, client(made), images, labels, 0.7)
    expected = {key: torch.zeros_like(parameter) for key, parameter in made.named_parameters()}
    for image, label in zip(images, labels, strict=True):
        alone = network(name)
        LOSS(alone(image[None])[1], label[None]).backward()  # type: ignore[no-untyped-call]
        gradients = {key: parameter.grad for key, parameter in alone.named_parameters() if parameter.grad is not None}
        factor = min(1.0, 0.7 / length(gradients))
        for key, gradient in gradients.items():
            expected[key] += factor * gradient
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-6, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), clip=st.floats(1e-3, 10), scale=st.sampled_from([1.0, 1e4, float("inf")]))
def test_no_image_moves_the_sum_by_more_than_the_clip(seed: int, clip: float, scale: float) -> None:
    made, (images, labels) = network(), batch(seed)
    images[0] *= scale
    half = client(made, "fedmr")
    with_it, without = total(made, half, images, labels, clip), total(made, half, images[1:], labels[1:], clip)
    moved = length({name: with_it[name] - without[name] for name in with_it})
    assert moved <= clip * (1 + 1e-9)
    assert np.isfinite(length(with_it))


def test_an_image_that_counts_half_moves_the_sum_by_half_the_clip() -> None:
    made, (images, labels) = network(), batch(images=1)
    shares = torch.tensor([0.5], dtype=torch.float64)
    assert length(clipped_sum(made, client(made), LOSS, images, labels, shares, 0.01)) == pytest.approx(0.005)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_the_paper_has_gradients_of_single_images(method: str) -> None:
    made, (images, labels) = network(), batch()
    half = client(made, method)
    alone = [total(made, half, images[i : i + 1], labels[i : i + 1], 0.5) for i in range(IMAGES)]
    for name, gradient in total(made, half, images, labels, 0.5).items():
        torch.testing.assert_close(gradient, torch.stack([one[name] for one in alone]).sum(0))


def test_fedmr_pulls_each_feature_to_its_prototype() -> None:
    made, (images, labels) = network(), batch()
    plain, pulled = (total(made, client(made, name), images, labels, 1e9) for name in ("fedavg", "fedmr"))
    assert length({name: pulled[name] - plain[name] for name in plain}) > 1e-6


def test_the_network_is_not_changed() -> None:
    made, (images, labels) = network("efficientnet_b0"), batch()
    before = models.state_arrays(made)
    total(made, client(made), images, labels, 1.0)
    assert all(np.array_equal(before[name], array) for name, array in models.state_arrays(made).items())


@pytest.mark.parametrize("name", NETWORKS)
def test_no_layer_mixes_images(name: str) -> None:
    made, (images, _) = network(name), batch()
    alone = torch.cat([made(image[None])[1] for image in images])
    torch.testing.assert_close(made(images)[1], alone)


def test_a_plain_activation_gives_what_the_other_gave() -> None:
    torch.manual_seed(0)
    other: nn.Module = models.build("efficientnet_b0", num_classes=CLASSES, **NETWORKS["efficientnet_b0"]).double()
    images = batch()[0]
    torch.testing.assert_close(other(images)[1], network("efficientnet_b0")(images)[1])
