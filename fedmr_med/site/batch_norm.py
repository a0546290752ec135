"""BatchNorm in training: kept statistics, and a warning where training and evaluation see different features.

In training mode BatchNorm normalises by the batch, in evaluation mode by what it kept. Where the two differ, as with
ImageNet's statistics on other pictures, prototypes and anchors, which are made in evaluation mode, are not where
training puts the features.
"""

import logging

import torch
from torch import Tensor, nn

from fedmr_med.models.norm import batch_norm_names
from fedmr_med.network import Network

FAR = 1.5
"""How many times as long features may be in one mode as in the other before the site warns."""

_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_log = logging.getLogger(__name__)


def train_mode(network: nn.Module, *, frozen: bool) -> None:
    """Put a network into training mode; ``frozen`` leaves BatchNorm the statistics that it has."""
    network.train()
    for module in network.modules():
        if frozen and isinstance(module, _LAYERS):
            module.eval()


@torch.no_grad()
def warn_if_modes_differ(network: Network, images: Tensor, *, site: str) -> None:
    """Say in the log where features of a batch are far longer in one mode than in the other.

    Neither the network nor the random numbers of the round are changed.

    Args:
        network: the received one.
        images: (B, ...) on its device.
        site: named in the log.
    """
    if len(images) < 2 or not batch_norm_names(network.state_dict()):
        return
    kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
    with torch.random.fork_rng():
        network.train()
        trained = float(network(images)[0].float().norm(dim=1).mean())
    for name, buffer in network.named_buffers():
        buffer.copy_(kept[name])
    network.eval()
    evaluated = float(network(images)[0].float().norm(dim=1).mean())
    if max(trained, evaluated) > FAR * min(trained, evaluated):
        _log.warning(
            "%s: features are %.3g long in training mode and %.3g in evaluation mode, as BatchNorm's statistics are of "
            "other images. See train.norm_statistics, or model.options.norm: group.",
            *(site, trained, evaluated),
        )
