"""Networks by name, all behind :class:`Network`: ``forward(x) -> (features, logits)``."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from fedmr_med.arrays import Arrays
from fedmr_med.config import NO_MODEL, PAIR
from fedmr_med.errors import ConfigError
from fedmr_med.models.efficientnet import EfficientNetB0, EfficientNetLite0
from fedmr_med.models.mlp import MLP
from fedmr_med.models.norm import batch_norm_names, with_group_norm
from fedmr_med.models.nothing import NoModel
from fedmr_med.models.pair import PairNetwork
from fedmr_med.models.resnet import narrow_resnet, resnet18
from fedmr_med.models.small_cnn import SmallCNN
from fedmr_med.models.wide_resnet import WideResNet28x10
from fedmr_med.models.wrapped import built_by, wrap
from fedmr_med.network import Network, load_arrays, parameter_names, state_arrays
from fedmr_med.registry import Registry, is_dotted

__all__ = [
    "MODELS",
    "Arrays",
    "Builder",
    "Network",
    "available",
    "batch_norm_names",
    "build",
    "load_arrays",
    "parameter_names",
    "state_arrays",
    "wrap",
]

Builder = Callable[..., Any]
"""Called with the number of classes, the channels of the images, and options by keyword. A plain torch network that
ends in one linear layer is wrapped."""


def _is_network(item: Any) -> bool:
    """Whether it is the class of a torch network. A class and no function: settings choose it and its arguments, and
    must not be able to call just anything that is installed.
    """
    return isinstance(item, type) and issubclass(item, nn.Module)


MODELS: Registry[Builder] = Registry(
    "network", group="fedmr_med.models", fits=lambda name, item: callable(item), dotted=_is_network
)
MODELS.add("efficientnet_b0", EfficientNetB0)
MODELS.add("efficientnet_lite0", EfficientNetLite0)
MODELS.add("mlp", MLP)
MODELS.add("narrow_resnet", narrow_resnet)
MODELS.add(NO_MODEL, NoModel)
MODELS.add(PAIR, PairNetwork)
MODELS.add("resnet18", resnet18)
MODELS.add("small_cnn", SmallCNN)
MODELS.add("wide_resnet28_10", WideResNet28x10)


def available() -> tuple[str, ...]:
    """Return the names of all networks."""
    return MODELS.names()


def build(name: str, *, num_classes: int, in_channels: int = 3, norm: str = "batch", **options: Any) -> Network:
    """Build a network; the same torch seed gives the same weights.

    Args:
        name: one of :func:`available`, or the dotted path of the class of a torch network.
        num_classes: number of classes of the task.
        in_channels: channels of the images.
        norm: ``batch``, the network as it is; or ``group``: GroupNorm in the place of its BatchNorm.
        options: what the network's own builder takes.

    Raises:
        ConfigError: the network or an option does not exist, or an option's value is not valid.
    """
    builder = MODELS.get(name, "model.name")
    if norm not in ("batch", "group"):
        raise ConfigError(
            f"model.options.norm: {norm!r} is not batch or group.", code="config.value", key="model.options.norm"
        )
    try:
        network = _built(name, builder, num_classes, in_channels, options)
        if norm == "group":
            with_group_norm(network)
        return network
    except (TypeError, ValueError) as e:
        raise ConfigError(
            f"model.options: {name} cannot be built: {e}.", code="config.value", key="model.options"
        ) from e


def _built(name: str, builder: Builder, num_classes: int, in_channels: int, options: dict[str, Any]) -> Network:
    if isinstance(builder, type) and is_dotted(name):
        return built_by(builder, num_classes, in_channels, options)
    known = _options(builder)
    for option in options:
        if option not in known:
            raise ConfigError(
                f"model.options: {name} has no option {option!r} ({', '.join(known) or 'it has none'}).",
                code="config.unknown-key",
                key=f"model.options.{option}",
            )
    return wrap(builder(num_classes, in_channels, **options))


def _options(builder: Builder) -> tuple[str, ...]:
    """Return the names of a builder's options: its keyword-only arguments."""
    parameters = inspect.signature(builder).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
