"""Features that are the raw input: a prototype of them would be the mean of patients' own attributes."""

import torch
from torch import Tensor

from fedmr_med.errors import ConfigError
from fedmr_med.models.classifier import ClassifierOnly
from fedmr_med.network import Network

_TRIED = 16


def check_not_raw(network: Network, images: Tensor) -> None:
    """Look whether a network's features mix what goes in, before statistics of them leave a site.

    A feature that depends on one number of the input alone is that number, whatever a normalisation made of it. The
    gradient tells, so neither the names of the layers nor their order matter. Features of a frozen backbone were looked
    at when they were made.

    Args:
        network: in evaluation mode.
        images: (B, ...) on its device; the first one is looked at. Texts are whole numbers, which are embedded.

    Raises:
        ConfigError: every feature that was tried depends on one number of the input.
    """
    if isinstance(network, ClassifierOnly) or not images.is_floating_point():
        return
    with torch.enable_grad():
        image = images[:1].detach().clone().requires_grad_()
        features = network(image)[0][0]
        if not features.requires_grad:
            return
        spread = range(0, len(features), max(1, len(features) // _TRIED))
        behind = [_numbers_behind(features[place], image) for place in spread]
    known = [count for count in behind if count]  # a unit at rest tells nothing
    if known and max(known) == 1:
        raise ConfigError(
            f"model: the features of {type(network).__name__} are the raw input, and a prototype would be the mean of "
            "patients' own attributes; give the network a hidden layer.",
            code="model.raw-features",
            key="model",
        )


def _numbers_behind(feature: Tensor, image: Tensor) -> int:
    """Return how many numbers of the input a feature depends on."""
    (gradient,) = torch.autograd.grad(feature, image, retain_graph=True, allow_unused=True)
    return 0 if gradient is None else int(gradient.count_nonzero())
