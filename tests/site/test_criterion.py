"""The classification losses against their formulas."""

import numpy as np
import pytest
import torch

from fedmr_med.config import LossConfig
from fedmr_med.site import criterion
from fedmr_med.site.criterion import FLAMBY_ISIC_WEIGHTS
from tests.helpers.errors import raises

COUNTS = np.array([10, 20, 0, 5, 1, 1, 1, 2])


def plain(logits: torch.Tensor, labels: torch.Tensor, gamma: float, weights: list[float]) -> float:
    """FLamby's loss by hand: mean over samples of -alpha_y (1 - p_y)^gamma log p_y."""
    total = 0.0
    for row, label in zip(logits.double(), labels.tolist(), strict=True):
        p = torch.softmax(row, 0)[label].item()
        total -= weights[label] * (1 - p) ** gamma * np.log(p)
    return total / len(labels)


@pytest.mark.parametrize(
    ("config", "gamma", "weights"),
    [
        (LossConfig(name="cross_entropy"), 0.0, [1.0] * 8),
        (LossConfig(name="cross_entropy", class_weights="flamby"), 0.0, list(FLAMBY_ISIC_WEIGHTS)),
        (LossConfig(name="focal"), 2.0, [1.0] * 8),
        (LossConfig(name="focal", gamma=1.5), 1.5, [1.0] * 8),
        (LossConfig(name="focal", class_weights="flamby"), 2.0, list(FLAMBY_ISIC_WEIGHTS)),
        (LossConfig(name="focal", class_weights="local"), 2.0, [4, 2, 0, 8, 40, 40, 40, 20]),
    ],
)
def test_loss_equals_its_formula(config: LossConfig, gamma: float, weights: list[float]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(16, 8, generator=generator) * 3
    labels = torch.tensor([0, 1, 3, 4, 5, 6, 7, 0] * 2)
    loss = criterion.build(config, COUNTS)(logits, labels)
    assert loss.item() == pytest.approx(plain(logits, labels, gamma, weights), rel=1e-5)


def test_focal_loss_is_finite_at_extreme_logits() -> None:
    logits = torch.tensor([[200.0] + [-200.0] * 7], requires_grad=True)
    for label in (0, 1):
        loss = criterion.build(LossConfig(name="focal", class_weights="flamby"), COUNTS)(logits, torch.tensor([label]))
        loss.backward()
        assert loss.isfinite()
        assert logits.grad.isfinite().all()


def test_flambys_weights_are_for_eight_classes() -> None:
    with raises("config.conflict", "loss.class_weights"):
        criterion.build(LossConfig(class_weights="flamby"), np.ones(10, dtype=np.int64))
