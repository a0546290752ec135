"""``fedmr-med perf`` runs at tiny sizes, and all its fields are there. No figure is checked: this is no timed test."""

import json
import sys

import pytest
import torch
from typer.testing import CliRunner

from fedmr_med import methods
from fedmr_med.cli import app
from fedmr_med.lab.perf import suite
from fedmr_med.lab.perf.suite import Plan
from fedmr_med.lab.perf.workload import LOOPS, Case, peak_bytes

TINY = Case("small_cnn", 12, batch_size=8, batches=2, options={"width": 2, "feature_size": 8})
PLAN = Plan(
    steps=((TINY, 1),),
    pairs=((Case("small_cnn", 12, batch_size=4), 1),),
    memory=(TINY,),
    rounds=((TINY, 1),),
    prototype_pass=(TINY, 1),
    private=(TINY, 1),
    loader={"images": 2, "image_size": 16, "batch_size": 2, "repetitions": 1},
    wait=None,
    aggregation=(("small_cnn", 4, 1), ("small_cnn", 5, 1)),
    runner=(2, 1),
    imports=1,
    parallel={"clients": 2, "updates": 10, "rounds": 1, "repetitions": 1},
    simulator=None,
)


@pytest.fixture
def one_thread_afterwards() -> object:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.nightly
@pytest.mark.slow
def test_all_fields_are_there(monkeypatch: pytest.MonkeyPatch, one_thread_afterwards: object) -> None:
    monkeypatch.setattr(suite, "QUICK", PLAN)
    result = CliRunner().invoke(app, ["perf", "--quick", "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    every = set(methods.PAPER_METHODS)
    assert set(found["step_ratio"]["small_cnn"]) == every | {LOOPS}
    assert set(found["memory_ratio"]["small_cnn"]) == every
    assert set(found["round_ratio"]["small_cnn"]) == every
    assert found["step_ratio"]["small_cnn"]["fedavg"] == 1
    assert set(found["loader_speedup"]) == {"train", "fast", "test"}
    assert set(found["wire_bytes"]) == {"float32", "float16", "difference"}
    single = "prototype_pass_ratio private_step_ratio aggregate_vs_numpy aggregate_vs_flare aggregate_vs_plain"
    for name in f"{single} aggregate_ms runner_ms_per_task import_seconds".split():
        assert found[name] > 0
    assert set(found["parallel_speedup"]) == {"wall", "cpu"}
    assert found["simulator_overhead"] is found["secure_share"] is None, "not with --quick"
    if sys.platform == "linux":
        assert found["aggregate_memory"] > 0
        assert found["aggregate_memory_unbounded"] > 0
    for figure in found["figures"]:
        assert figure["low"] <= figure["value"] <= figure["high"]
        assert figure["compared"]
        assert figure["case"]


def test_memory_counts_what_a_method_holds() -> None:
    plain, moon = (peak_bytes(TINY, method) for method in ("fedavg", "moon"))
    assert plain == peak_bytes(TINY, "fedavg"), "exact"
    assert moon > plain, "two further networks"
    assert peak_bytes(Case("small_cnn", 12, batch_size=16, options=TINY.options), "fedavg") > plain
