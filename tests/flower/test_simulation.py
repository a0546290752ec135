"""Flower's simulation and the runner come to the same, bit for bit."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from fedmr_med.flower import simulate
from fedmr_med.runner import Federation
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE
from tests.helpers.small import small_job
from tests.helpers.transports import demo_sites, outcome


@pytest.mark.slow  # Ray starts processes
def test_two_rounds_and_the_head_in_flowers_simulation_equal_the_runners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")  # Flower adds to it, for Ray's processes
    job, sites, steps = small_job(), demo_sites("msk", "vienna-dias"), []
    state = simulate(job, sites, tmp_path / "flower", lambda event: steps.append(getattr(event, "step", None)))
    assert [step.kind for step in steps if step is not None] == [TRAIN, TRAIN, VALIDATE, HEAD, VALIDATE]
    assert state.round == 2
    assert state.head
    assert outcome(state) == outcome(Federation(job, sites, tmp_path / "runner").run())
