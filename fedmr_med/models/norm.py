"""Normalisation layers: which arrays of a model belong to BatchNorm, and GroupNorm in its place."""

from collections.abc import Iterable

from torch import nn

_GROUPS = (32, 16, 8, 4, 2)
_SMALLEST = 8
_STATISTIC = ".running_mean"


def batch_norm_names(names: Iterable[str]) -> frozenset[str]:
    """Return which of a model's arrays belong to BatchNorm layers: their weights, and the statistics they keep."""
    names = list(names)
    layers = {name.removesuffix(_STATISTIC) for name in names if name.endswith(_STATISTIC)}
    return frozenset(name for name in names if name.rpartition(".")[0] in layers)


def with_group_norm(network: nn.Module) -> nn.Module:
    """Put GroupNorm (Wu and He, 2018) in the place of every BatchNorm layer, with its weights, and return the network.

    GroupNorm keeps no statistics of the data, so that sites with other classes do not disturb each other through them.

    Raises:
        ValueError: the network has no BatchNorm.
    """
    layers = {name: module for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)}
    if not layers:
        raise ValueError("norm: group takes the place of BatchNorm, which this network does not have")
    for name, module in layers.items():
        parent, _, last = name.rpartition(".")
        layer = nn.GroupNorm(groups_of(module.num_features), module.num_features, eps=module.eps)
        layer.weight, layer.bias = module.weight, module.bias
        setattr(network.get_submodule(parent), last, layer)
    return network


def groups_of(channels: int) -> int:
    """Return a number of groups: at most 32, of equal size, and of at least eight channels each."""
    return next((n for n in _GROUPS if channels % n == 0 and channels // n >= _SMALLEST), 1)
