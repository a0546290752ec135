"""Any torch classifier as a network of this package: its features are found by hooks."""

from typing import Any

import torch
from torch import Tensor, nn

from fedmr_med.errors import ConfigError
from fedmr_med.network import Network
from fedmr_med.seeding import torch_stream


class Probe(Network):
    """A model that ends in a linear layer, seen as ``forward(x) -> (features, logits)``.

    The features are the input of the last linear layer; where that comes out of a dropout layer, the input of
    the dropout. Dropout by ``torch.nn.functional`` cannot be seen. What comes after the linear layer, such as a
    sigmoid, belongs to the logits, which are the output of the model.

    Args:
        model: the model; it is used, not copied.
        hidden: units of a hidden layer to put before the linear layer, for a model that has no other.
        seed: draws the hidden layer.

    Raises:
        ConfigError: the model has no linear layer.
    """

    def __init__(self, model: nn.Module, hidden: int | None = None, seed: int = 0) -> None:
        super().__init__()
        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        if not linear:
            why = f"{type(model).__name__} has no linear layer; FedMR needs a model that ends in one, for its features."
            raise ConfigError(why, code="model.no-classifier")
        self.model = model
        self.classifier = linear[-1]
        if hidden is not None:
            self.classifier = self._with_hidden(hidden, seed)
        self.feature_size = self.classifier.in_features

    def _with_hidden(self, units: int, seed: int) -> nn.Linear:
        """Put a hidden layer before the last linear layer; return the new last one."""
        last = self.classifier
        name = next(name for name, module in self.model.named_modules() if module is last)
        if not name:
            why = "hidden: the model is a linear layer itself; put it into a torch.nn.Sequential."
            raise ConfigError(why, code="model.last-layer", key="hidden")
        with torch_stream(seed, "hidden layer"):
            classifier = nn.Linear(units, last.out_features)
            layers = nn.Sequential(nn.Linear(last.in_features, units), nn.ReLU(), classifier)
        parent, _, key = name.rpartition(".")
        setattr(self.model.get_submodule(parent), key, layers)
        return classifier

    def classify(self, features: Tensor) -> Tensor:
        """Return the logits (n, C) of features (n, d); a single output is the second of two classes' logits."""
        output: Tensor = self.classifier(features)
        return torch.cat([torch.zeros_like(output), output], dim=1) if output.shape[1] == 1 else output

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (n, feature_size) and what the model returns."""
        features: list[Tensor] = []
        dropped: list[tuple[Tensor, Tensor]] = []

        def before_classifier(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            features.append(next((before for before, after in dropped if after is inputs[0]), inputs[0]))

        def after_dropout(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            dropped.append((inputs[0], output))

        # Hooks that stayed would be copied with the model, and hold on to the graph of the last batch.
        hooks = [self.classifier.register_forward_pre_hook(before_classifier)]
        hooks += [m.register_forward_hook(after_dropout) for m in self.model.modules() if isinstance(m, nn.Dropout)]
        try:
            output = self.model(x)
        finally:
            for hook in hooks:
                hook.remove()
        if not features:
            raise ConfigError(
                f"The last linear layer of {type(self.model).__name__} takes no part in its forward pass; FedMR "
                "needs a model that ends in a linear layer.",
                code="model.last-layer",
            )
        return features[-1], output
