"""The optimisers against torch's own, and that they spare a client process torch's compiler."""

import subprocess
import sys

import pytest
import torch

from fedmr_med.config import TrainConfig
from fedmr_med.site import optim


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_updates_equal_torchs(name: str, weight_decay: float) -> None:
    config = TrainConfig(optimizer=name, lr=0.05, momentum=0.9, weight_decay=weight_decay, epochs=1)
    torch.manual_seed(0)
    ours, theirs = ([torch.nn.Parameter(t.clone()) for t in (torch.ones(3, 2), torch.ones(4))] for _ in range(2))
    mine = optim.build(ours, config)
    reference: torch.optim.Optimizer
    if name == "adam":
        reference = torch.optim.Adam(theirs, lr=0.05, weight_decay=weight_decay)
    else:
        reference = torch.optim.SGD(theirs, lr=0.05, momentum=0.9, weight_decay=weight_decay)
    for _ in range(6):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
        mine.zero_grad()
        assert all(a.grad is None for a in ours)


def test_a_parameter_without_a_gradient_stays() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optim.build([parameter], TrainConfig(epochs=1, weight_decay=0.1)).step()
    assert torch.equal(parameter, torch.ones(2))


CLIENT = """
import sys
from pathlib import Path
from tests.helpers.small import initial_state, small_hospital, small_job, task_for
job = small_job()
small_hospital("msk", job, Path(sys.argv[1])).train(task_for(initial_state(job), job))
print(*(name for name in ("torch._dynamo", "sympy", "monai", "albumentations", "sklearn")
        if name in sys.modules))
"""


@pytest.mark.slow
def test_a_client_process_does_not_load_what_it_does_not_use(tmp_path: object) -> None:
    done = subprocess.run([sys.executable, "-c", CLIENT, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
