"""The classification loss by name."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmr_med.config import LossConfig
from fedmr_med.errors import ConfigError
from fedmr_med.registry import Registry

# N / n_c over all six centres of Fed-ISIC2019, as published with FLamby's loss.
FLAMBY_ISIC_WEIGHTS = (5.5813, 2.0472, 7.0204, 26.1194, 9.5369, 101.0707, 92.5224, 38.3443)

Criterion = Callable[[Tensor, Tensor], Tensor]


def build(config: LossConfig, counts: npt.NDArray[np.int64], device: torch.device | None = None) -> Criterion:
    """Return a function (logits (B, C), labels (B,)) -> mean loss.

    Args:
        counts: (C,) local training images per class, for ``class_weights: local``.
        device: where the class weights live.

    Raises:
        ConfigError: there is no loss of that name, or FLamby's weights are asked for with another number of classes.
    """
    return LOSSES.get(config.name, "loss.name")(config, _class_weights(config, counts, device))


def cross_entropy(config: LossConfig, weight: Tensor | None) -> Criterion:
    """Return the cross-entropy; weighted terms are divided by the batch size, not by the sum of weights."""
    return lambda logits, labels: F.cross_entropy(logits, labels, weight=weight, reduction="sum") / len(labels)


def focal(config: LossConfig, weight: Tensor | None) -> Criterion:
    """Return the focal loss, divided by the batch size."""
    from monai.losses import FocalLoss

    loss = FocalLoss(use_softmax=True, gamma=config.gamma, weight=weight, reduction="none")

    def focal_loss(logits: Tensor, labels: Tensor) -> Tensor:
        # MONAI's own one-hot writes in place, which torch.func.vmap does not take.
        targets = labels[:, None] == torch.arange(logits.shape[1], device=labels.device)
        # MONAI means something else by "sum", and its "mean" divides by the number of classes as well.
        each: Tensor = loss(logits, targets.to(logits))
        return each.sum() / len(labels)

    return focal_loss


LOSSES: Registry[Callable[[LossConfig, Tensor | None], Criterion]] = Registry("loss")
"""Makers of losses, called with the job's settings and the class weights (C,)."""

LOSSES.add("cross_entropy", cross_entropy)
LOSSES.add("focal", focal)


def _class_weights(config: LossConfig, counts: npt.NDArray[np.int64], device: torch.device | None) -> Tensor | None:
    if config.class_weights == "none":
        return None
    if config.class_weights == "flamby":
        if len(counts) != len(FLAMBY_ISIC_WEIGHTS):
            raise ConfigError(
                f"loss.class_weights: flamby is for the 8 classes of ISIC2019, not for {len(counts)}.",
                code="config.conflict",
                key="loss.class_weights",
            )
        return torch.tensor(FLAMBY_ISIC_WEIGHTS, device=device)
    # A class without images here never occurs as a target; weight 0 keeps the tensor finite.
    weights = np.divide(counts.sum(), counts, out=np.zeros(len(counts)), where=counts > 0)
    return torch.tensor(weights, dtype=torch.float32, device=device)
