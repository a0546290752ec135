"""Looking at what the server sends before anything is done with it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.arrays import Arrays, difference, forms_of
from fedmr_med.errors import WireError
from fedmr_med.methods.base import Method
from fedmr_med.network import Network
from fedmr_med.wire.messages import TrainTask


def check_task(task: TrainTask, network: Network, method: Method) -> None:
    """Compare a task with the job's network and method, as this site built them.

    Raises:
        WireError: an array is missing, unexpected, misshapen or not finite, a variance is negative, or the round is
            none of the chain's; nothing of the task may be used then.
    """
    if not 0 <= task.round < task.rounds:
        raise WireError(f"the task is for round {task.round + 1} of {task.rounds}", code="wire.round")
    check_model(task, network)
    built = _arrays(network.named_parameters())
    server = method.server()
    expected = forms_of(server.client_view(server.initial_state(built)))
    # A method may send more than before the first round, such as a mean over the sites.
    if found := difference({name: array for name, array in task.method.items() if name in expected}, expected):
        raise WireError(f"the method's state {found}", code="wire.form", key="method")
    check_finite("method's state", task.method)


def check_model(task: TrainTask, network: Network) -> None:
    """Compare the model and the prototypes of a task with the job's network.

    Raises:
        WireError: see :func:`check_task`.
    """
    if found := difference(task.model, forms_of(_arrays(network.state_dict().items()))):
        raise WireError(f"the model {found}", code="wire.form", key="model")
    check_finite("model", task.model)
    if task.averaged and (found := difference(task.averaged, forms_of(_arrays(network.named_parameters())))):
        raise WireError(f"the averaged model {found}", code="wire.form", key="averaged")
    check_finite("averaged model", task.averaged)
    negative = [name for name, array in task.model.items() if name.endswith("running_var") and (array < 0).any()]
    if negative:
        raise WireError(f"the model's {negative[0]!r} has a negative variance", code="wire.range", key=negative[0])
    classes, size = network.classifier.out_features, network.feature_size
    means, available, age = task.prototypes.means, task.prototypes.available, task.prototypes.age
    if tuple(means.shape) != (classes, size) or not means.is_floating_point():
        raise WireError(
            f"the prototypes have shape {tuple(means.shape)}, not {(classes, size)}", code="wire.form", key="prototypes"
        )
    if any(tuple(part.shape) != (classes,) for part in (available, age)) or available.dtype != torch.bool:
        raise WireError(
            f"the prototypes do not say for {classes} classes which are available, and how old",
            code="wire.form",
            key="prototypes",
        )
    check_finite("prototypes", {"means": means.numpy()})


def _arrays(named: Iterable[tuple[str, torch.Tensor]]) -> Arrays:
    return {name: tensor.detach().cpu().numpy() for name, tensor in named}


def check_finite(what: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise WireError naming the first array with a value that is NaN or infinite."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise WireError(f"the {what}: {name!r} has NaN or infinite values", code="wire.not-finite", key=what)
