"""A training step never waits for the device: nothing in it asks for a value or for a number of elements.

On a GPU each of these operations stops the process until the device has caught up. There is no GPU here, so the
operations themselves are forbidden, on the CPU.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedmr_med import methods
from fedmr_med.config import MethodConfig
from fedmr_med.lab.perf.workload import Case, Client
from fedmr_med.methods import PAPER_METHODS

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive", "unique_dim", "equal"}
CASE = Case("small_cnn", 32, classes=10, batch_size=8)


class NoWaiting(TorchDispatchMode):
    """Refuses operations whose result a process has to wait for."""

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        name = operation.name().removeprefix("aten::").split(".")[0]
        masks = arguments[1] if name in ("index", "index_put", "index_put_") else ()
        if name in WAITING or any(mask is not None and mask.dtype == torch.bool for mask in masks):
            raise AssertionError(f"a step waits for {operation.name()}")
        return operation(*arguments, **(options or {}))


def refuse(name: str) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"a step calls .{name}()")

    return method


BOTH_FORMS = [MethodConfig(name="fedmr", options={"variant": variant}) for variant in ("paper", "anchored")]
METHODS = [*BOTH_FORMS, *(MethodConfig(name=name) for name in PAPER_METHODS if name != "fedmr")]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: "-".join([method.name, *method.options.values()]))
def test_a_step_asks_the_device_for_nothing(method: MethodConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(CASE, method.name)
    client.method = methods.build(method)
    client.prepare_steps()
    client.step()
    for name in ("cpu", "item", "numpy", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, refuse(name))
    with NoWaiting():
        client.step()


@pytest.mark.parametrize(
    "waits", [lambda x: float(x.sum()), lambda x: bool((x > 0).any()), lambda x: x[x > 0], lambda x: x.nonzero()]
)
def test_what_would_wait_is_noticed(waits: Callable[[torch.Tensor], object]) -> None:
    with NoWaiting(), pytest.raises(AssertionError, match="a step waits for"):
        waits(torch.ones(3))
