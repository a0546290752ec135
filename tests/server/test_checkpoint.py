"""The checkpoint: complete, loadable without pickle, refused for another model or configuration."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.errors import CheckpointError
from fedmr_med.evaluation.results import Best, History
from fedmr_med.models.model_file import load_model
from fedmr_med.prototypes import Prototypes
from fedmr_med.server.checkpoint import load_checkpoint, save_checkpoint
from fedmr_med.server.state import GlobalState
from tests.helpers.errors import raises
from tests.helpers.small import initial_state, small_job


@pytest.fixture
def state() -> GlobalState:
    fresh = initial_state(small_job())
    classes, size = fresh.prototypes.means.shape
    return replace(
        fresh,
        prototypes=Prototypes(torch.randn(classes, size), torch.ones(classes, dtype=torch.bool), torch.arange(classes)),
        method={"h": np.ones(3, dtype=np.float32)},
        round=3,
        accepted={"bcn": 2, "msk": 1},
        history=History(best=Best(round=2, balanced_accuracy=0.5)),
    )


def test_everything_comes_back(state: GlobalState, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c.pt", state, small_job())
    loaded = load_checkpoint(tmp_path / "c.pt", small_job(), initial_state(small_job()))
    assert loaded.model.keys() == state.model.keys()
    assert all(np.array_equal(loaded.model[name], state.model[name]) for name in state.model)
    assert torch.equal(loaded.prototypes.means, state.prototypes.means)
    assert torch.equal(loaded.prototypes.age, state.prototypes.age)
    assert loaded.method["h"].tolist() == [1, 1, 1]
    assert (loaded.round, loaded.accepted, loaded.parameters) == (3, state.accepted, state.parameters)
    assert loaded.history == state.history


def test_a_longer_chain_goes_on_but_another_configuration_does_not(state: GlobalState, tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    save_checkpoint(path, state, small_job())
    load_checkpoint(path, small_job(federation={"rounds": 20}), initial_state(small_job()))
    with raises("checkpoint.other-settings"):
        load_checkpoint(path, small_job(train={"lr": 0.5}), initial_state(small_job()))


def test_another_model_or_head_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"

    def with_head(head: str) -> dict[str, object]:
        return {"name": "efficientnet_b0", "options": {"head": head}}

    fedmr, flamby = small_job(model=with_head("fedmr")), small_job(model=with_head("flamby"))
    save_checkpoint(path, initial_state(flamby), flamby)
    with raises("checkpoint.other-model"):
        load_checkpoint(path, fedmr, initial_state(fedmr))
    with raises("checkpoint.other-model"):
        load_checkpoint(path, small_job(), initial_state(small_job()))


@pytest.mark.parametrize(
    ("content", "code"), [(b"", "file.unreadable"), (b"not a checkpoint", "file.unreadable"), (None, "file.missing")]
)
def test_what_is_not_a_checkpoint_is_refused(tmp_path: Path, content: bytes | None, code: str) -> None:
    path = tmp_path / "c.pt"
    if content is not None:
        path.write_bytes(content)
    with raises(code, kind=CheckpointError):
        load_checkpoint(path, small_job(), initial_state(small_job()))


def test_a_truncated_checkpoint_is_named(state: GlobalState, tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    save_checkpoint(path, state, small_job())
    path.write_bytes(path.read_bytes()[:-200])
    with raises("file.unreadable", kind=CheckpointError):
        load_model(path)
