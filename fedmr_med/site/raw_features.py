"""Features that are the raw input: a prototype of them would be the mean of patients' own attributes.

So would be a prototype of any linear function of the input, to whoever knows the model and solves for the input.
"""

import torch
from torch import Tensor

from fedmr_med.errors import ConfigError
from fedmr_med.models.job_network import ClassifierOnly
from fedmr_med.network import Network

_TRIED = 16
_SCALE = 100.0  # far from zero: a bias must not keep all points on one side of a rectifier's kink
_BENT = 1e-4  # of the distance between two values; float32 alone bends a straight line by 1e-6
_MOVED = 1e-5


def check_not_raw(network: Network, images: Tensor) -> None:
    """Look whether a network's features mix what goes in, before statistics of them leave a site.

    A feature that depends on one number of the input alone is that number, whatever a normalisation made of it. The
    gradient tells, so neither the names of the layers nor their order matter. And along a line through the inputs no
    feature may be a straight line, unless it is constant. The network is looked at as it is: weights with which a
    rectifier never bends are found, a layer that hardly bends is not. Features of a frozen backbone were looked at when
    they were made.

    Args:
        network: in evaluation mode.
        images: (B, ...) on its device; the first one is looked at. Texts are whole numbers, which are embedded.

    Raises:
        ConfigError: every feature that was tried depends on one number of the input, or one is linear in it.
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
        raise _raw(network, "are the raw input")
    if straight := _straight(network, images):
        raise _raw(network, f"are a linear function of the input, {straight} of {len(features)}")


def _raw(network: Network, what: str) -> ConfigError:
    return ConfigError(
        f"model: the features of {type(network).__name__} {what}, and a prototype would tell the mean of patients' own "
        "attributes; give the network a hidden layer with a nonlinearity.",
        code="model.raw-features",
        key="model",
    )


def _numbers_behind(feature: Tensor, image: Tensor) -> int:
    """Return how many numbers of the input a feature depends on."""
    (gradient,) = torch.autograd.grad(feature, image, retain_graph=True, allow_unused=True)
    return 0 if gradient is None else int(gradient.count_nonzero())


@torch.no_grad()
def _straight(network: Network, images: Tensor) -> int:
    """Return how many features are straight between two points, and not constant, in all tries."""
    generator = torch.Generator().manual_seed(0)
    straight = torch.ones(network.feature_size, dtype=torch.bool)
    for _ in range(_TRIED):  # a rectifier has its kink between two points in one try of two
        first, last = _SCALE * torch.randn(2, *images.shape[1:], generator=generator)
        points = torch.stack([first, last, (first + last) / 2]).to(images.device, images.dtype)
        a, b, middle = network(points)[0].double().cpu()
        far = (a - b).abs()
        straight &= ((middle - (a + b) / 2).abs() <= _BENT * far) & (far > _MOVED * torch.maximum(a.abs(), b.abs()))
        if not straight.any():
            break
    return int(straight.sum())
