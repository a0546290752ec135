"""BatchNorm in local training: statistics that stay as they are, and a warning where the two modes differ."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.models.norm import batch_norm_names
from fedmr_med.site.training import warn_if_modes_differ
from tests.helpers.methods import CLASSES, Federation, Tiny, WithBatchNorm, job

EPOCHS = {"epochs": 2}


def moved(folder: Path, norm_statistics: str) -> dict[str, bool]:
    """Return which arrays of a network with BatchNorm a round of training changes."""
    federation = Federation(job("fedavg", train=EPOCHS | {"norm_statistics": norm_statistics}), folder, WithBatchNorm)
    before = dict(federation.state.model)
    federation.round()
    return {name: not np.array_equal(array, before[name]) for name, array in federation.state.model.items()}


def test_frozen_statistics_stay_and_the_weights_are_trained(tmp_path: Path) -> None:
    frozen, usual = moved(tmp_path / "frozen", "frozen"), moved(tmp_path / "batch", "batch")
    kept = {name for name, changed in frozen.items() if not changed}
    assert kept == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert all(usual.values()), "without it they change, so the test can fail"


def network(scale: float) -> WithBatchNorm:
    """Return a network whose kept variances are ``scale`` times what a batch of standard normal pixels has."""
    torch.manual_seed(0)
    made = WithBatchNorm()
    for _ in range(200):
        made(torch.randn(64, 1, 3, 3))
    made.norm.running_var *= scale
    return made


@pytest.mark.parametrize(("scale", "warned"), [(1.0, False), (0.05, True)])
def test_a_site_says_where_features_differ_between_the_modes(
    scale: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = network(scale)
    with caplog.at_level(logging.WARNING):
        warn_if_modes_differ(made, torch.randn(64, 1, 3, 3), site="a")
    assert bool(caplog.records) is warned


def test_looking_changes_neither_network_nor_random_numbers() -> None:
    made = network(0.05)
    before = {name: array.clone() for name, array in made.state_dict().items()}
    torch.manual_seed(1)
    warn_if_modes_differ(made, torch.randn(8, 1, 3, 3, generator=torch.Generator()), site="a")
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(array, before[name]) for name, array in made.state_dict().items())


def test_a_network_without_batch_norm_is_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    assert not batch_norm_names(Tiny().state_dict())
    warn_if_modes_differ(Tiny(), torch.full((CLASSES, 1, 3, 3), torch.nan), site="a")
    assert not caplog.records


def test_nothing_is_said_of_statistics_that_no_image_has_made(caplog: pytest.LogCaptureFixture) -> None:
    made = WithBatchNorm()
    with torch.no_grad():
        made.norm.weight.fill_(20)
    warn_if_modes_differ(made, 100 * torch.randn(64, 1, 3, 3), site="a")
    assert not caplog.records
    made.norm.running_mean += 0.1
    warn_if_modes_differ(made, 100 * torch.randn(64, 1, 3, 3), site="a")
    assert caplog.records, "the same network with statistics of other images"
