"""FedBN: BatchNorm layers that stay at their site."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.lab.bench.request import BenchRequest
from fedmr_med.models import batch_norm_names, state_arrays
from fedmr_med.server.chain import CHECKPOINT
from fedmr_med.server.state import GlobalState
from tests.helpers.benchmarks import tiny_federation, tiny_job
from tests.helpers.errors import raises
from tests.helpers.methods import Federation, WithBatchNorm, job, same_model

torch.set_num_threads(1)

LAYERS = frozenset({"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"})


def local(name: str, folder: Path) -> Federation:
    return Federation(job(name).override({"federation": {"buffers": "local"}}), folder, WithBatchNorm)


@pytest.mark.parametrize("name", ["fedavg", "moon", "feddc"])
def test_the_layers_never_leave_and_come_back_in_the_next_round(name: str, tmp_path: Path) -> None:
    federation = local(name, tmp_path)
    start = federation.state.model
    assert batch_norm_names(start) == LAYERS
    for _ in range(2):
        replies = federation.round()
        for reply in replies:
            assert all(np.array_equal(reply.model[layer], start[layer]) for layer in LAYERS)
    assert all(np.array_equal(federation.state.model[layer], start[layer]) for layer in LAYERS)
    trained = state_arrays(federation.sites["a"].network)
    assert int(trained["norm.num_batches_tracked"]) == 2 * 2, "two rounds of two epochs of one batch"
    federation.sites["a"].validate(federation.task())
    scored = state_arrays(federation.sites["a"].network)
    assert all(np.array_equal(scored[layer], trained[layer]) for layer in LAYERS)
    assert np.array_equal(scored["conv.weight"], federation.state.model["conv.weight"])


def test_new_processes_and_repeated_rounds_change_nothing(tmp_path: Path) -> None:
    steady, restarted = local("fedavg", tmp_path / "steady"), local("fedavg", tmp_path / "restarted")
    for present in ("abc", "ac", "abc"):
        steady.round(present)
        restarted.sites["a"].train(restarted.task())
        restarted.sites = {site: restarted.open(site) for site in restarted.sites}
        restarted.round(present)
    assert same_model(steady.state, restarted.state)


def test_a_site_that_lost_its_layers_says_so(tmp_path: Path) -> None:
    federation = local("fedavg", tmp_path)
    federation.round()
    for path in (tmp_path / "b" / "chains" / "chain" / "own_layers").glob("round-*.npz"):
        path.unlink()
    with raises("state.lost"):
        federation.sites["b"].train(federation.task())


@pytest.mark.slow
def test_a_run_that_was_stopped_resumes_with_the_same_layers(fmnist: Path, tmp_path: Path) -> None:
    config = tiny_job("fedavg", changes={"model.options": {}, "federation.buffers": "local"}).override(
        {"model": {"name": "narrow_resnet", "options": {"width": 8}}, "federation": {"rounds": 2}}
    )
    whole = tiny_federation(config, fmnist, tmp_path / "whole", central=False).run()

    def stop(state: GlobalState) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny_federation(config, fmnist, tmp_path / "stopped", central=False).run(stop)
    assert (tmp_path / "stopped" / CHECKPOINT).exists()
    again = tiny_federation(config, fmnist, tmp_path / "stopped", central=False).run()
    assert same_model(again, whole)
    assert again.history.evaluations == whole.history.evaluations
    with raises("config.conflict", "federation.buffers"):
        tiny_federation(config, fmnist, tmp_path / "central", central=True)


def test_in_a_comparison_the_clients_score_with_their_own_layers(fmnist: Path) -> None:
    request = BenchRequest(
        dataset="fmnist",
        data=fmnist,
        methods=("fedavg",),
        model="narrow_resnet",
        settings={"federation.buffers": "local"},
    )
    (run,) = request.runs()
    assert run.test() is None
    assert all(site.data.holds_test for site in run.sites.values())
