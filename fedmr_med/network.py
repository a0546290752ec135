"""What every network is to the rest of the package: features, logits, and named arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedmr_med.arrays import Arrays
from fedmr_med.errors import CheckpointError


class Network(nn.Module):
    """A feature extractor followed by one linear classifier.

    ``forward(x)`` returns ``(features, logits)``, of shapes (n, feature_size) and (n, num_classes). The
    features are what FedMR's losses and prototypes work on; dropout, where a network has it, lies between them
    and the classifier.

    Attributes:
        feature_size: d, the length of a feature.
        classifier: the linear layer from features to logits.
    """

    feature_size: int
    classifier: nn.Linear

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (n, feature_size) and logits (n, num_classes) of a batch."""
        raise NotImplementedError


def parameter_names(network: nn.Module) -> frozenset[str]:
    """Return the names of the trained parameters; every other name of :func:`state_arrays` is a buffer."""
    return frozenset(name for name, _ in network.named_parameters())


def state_arrays(network: nn.Module) -> Arrays:
    """Return copies of all parameters and buffers by their ``state_dict`` names."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}


def load_arrays(network: nn.Module, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Set all parameters and buffers; values are cast to the network's own types.

    Raises:
        CheckpointError: an array is missing, unexpected, not numeric or of another shape; the network is unchanged.
    """
    state = network.state_dict()
    for name in dict.fromkeys((*state, *arrays)):
        if name not in arrays:
            found = f"has no {name!r}"
        elif name not in state:
            found = f"has an unexpected {name!r}"
        elif arrays[name].shape != state[name].shape:
            found = f"has {name!r} of shape {arrays[name].shape}, the model of {tuple(state[name].shape)}"
        elif not (np.issubdtype(arrays[name].dtype, np.floating) or np.issubdtype(arrays[name].dtype, np.integer)):
            problem = f"{name!r} in the model state is not numeric but {arrays[name].dtype}."
            raise CheckpointError(problem, code="checkpoint.form", key=name)
        else:
            continue
        problem = f"The model state {found}: it belongs to another model."
        raise CheckpointError(problem, code="checkpoint.other-model", key=name)
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(torch.tensor(arrays[name]))
