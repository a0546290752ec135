"""Any torch network that ends in one linear layer, behind the protocol of this package."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmr_med.errors import ConfigError
from fedmr_med.network import Network

# What other packages call the two numbers that every network here is built with.
_CLASSES = ("num_classes", "out_channels", "n_classes")
_CHANNELS = ("in_channels", "in_chans", "n_input_channels")


class _End(nn.Module):
    """Stands where the classifier was, and remembers what reached it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the input itself."""
        self.seen = x
        return x


class Wrapped(Network):
    """A network split at its last linear layer: what goes into it is the feature.

    Attributes:
        body: the network without its classifier.
        dropout: what lay between the two, if it was a dropout layer; the feature is the one before it.
        classifier: the linear layer.

    Args:
        module: the network; it is changed and must not be used further.
        feature_layer: the layer whose output, flattened, is the feature, where something random in between, such as a
            functional dropout, must not be part of it. None takes what goes into the classifier.

    Raises:
        ConfigError: the network has no linear layer, or no such feature layer.
    """

    def __init__(self, module: nn.Module, feature_layer: str | None = None):
        super().__init__()
        linear = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
        if not linear or linear[-1][0] == "":
            what = "is a linear layer itself" if linear else "has no linear layer"
            raise ConfigError(
                f"model: {type(module).__name__} {what}; FedMR needs features before a linear classifier.",
                code="model.raw-features" if linear else "model.no-classifier",
                key="model",
            )
        name, classifier = linear[-1]
        parent, _, key = name.rpartition(".")
        holder = module.get_submodule(parent)
        self._end = _End()
        self.body = module
        self.dropout = _dropout_before(holder, key)
        self.classifier = classifier
        self.feature_size = classifier.in_features
        self._layer_output: Tensor | None = None
        self._checked = False
        setattr(holder, key, self._end)
        self._named = feature_layer
        if feature_layer is not None:
            layers = dict(module.named_modules())
            if feature_layer not in layers:
                raise ConfigError(
                    f"model: {type(module).__name__} has no layer {feature_layer!r}.",
                    code="config.unknown-name",
                    key="feature_layer",
                )
            layers[feature_layer].register_forward_hook(self._keep)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (n, feature_size) and logits (n, num_classes) of a batch.

        Raises:
            ConfigError: the network does something else with its last linear layer than to return its output.
        """
        reached: Tensor = self.body(x)
        if self._end.seen is None or reached is not self._end.seen or reached.ndim != 2:
            raise ConfigError(
                f"model: {type(self.body).__name__} does not end in its last linear layer: its output must be that "
                "layer's, one row of logits per sample.",
                code="model.last-layer",
                key="model",
            )
        self._end.seen = None
        features = reached if self._named is None else self._named_features(reached)
        return features, self.classifier(self.dropout(reached))

    def _keep(self, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        self._layer_output = output

    def _named_features(self, reached: Tensor) -> Tensor:
        """Return the output of the feature layer; see once that nothing but dropout lies behind it."""
        kept, self._layer_output = self._layer_output, None
        features = reached.new_empty(0) if kept is None else kept.flatten(1)
        if features.shape != reached.shape or not (self.training or self._checked or torch.equal(features, reached)):
            raise ConfigError(
                f"model: the output of {self._named!r} is not what goes into the classifier; name the layer before.",
                code="model.feature-layer",
                key="feature_layer",
            )
        self._checked = self._checked or not self.training
        return features


def wrap(module: nn.Module, feature_layer: str | None = None) -> Network:
    """Return a network of this package around any torch network that ends in one linear layer.

    torchvision's, timm's and MONAI's classifiers do; see :class:`Wrapped`.

    Raises:
        ConfigError: it has no linear layer, or no such feature layer.
    """
    return module if isinstance(module, Network) else Wrapped(module, feature_layer)


def built_by(kind: type[nn.Module], num_classes: int, in_channels: int, options: Mapping[str, Any]) -> Network:
    """Return a network of another package's class, wrapped where it is a plain one.

    The number of classes and channels go to the arguments that are called like that, unless ``options`` give them;
    the option ``feature_layer`` is for :func:`wrap`.

    Raises:
        TypeError: arguments are missing or unknown.
        ConfigError: it cannot be wrapped, or has another number of outputs.
    """
    given = dict(options)
    known = inspect.signature(kind).parameters
    feature_layer = None if "feature_layer" in known else given.pop("feature_layer", None)
    for names, value in ((_CLASSES, num_classes), (_CHANNELS, in_channels)):
        for name in names:
            if name in known and name not in given:
                given[name] = value
                break
    network = wrap(kind(**given), feature_layer)
    if network.classifier.out_features != num_classes:
        outputs = network.classifier.out_features
        raise ConfigError(
            f"model: the network has {outputs} outputs, and the task {num_classes} classes.",
            code="model.outputs",
            key="model",
        )
    return network


def _dropout_before(holder: nn.Module, key: str) -> nn.Module:
    """Take a dropout layer right before the classifier out of its sequence, and return it; else do nothing."""
    if isinstance(holder, nn.Sequential) and key.isdigit() and int(key) > 0:
        before = holder[int(key) - 1]
        if isinstance(before, nn.Dropout):
            holder[int(key) - 1] = nn.Identity()
            return before
    return nn.Identity()
