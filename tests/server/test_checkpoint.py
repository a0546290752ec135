"""The checkpoint: complete, loadable without pickle, refused for another model or configuration."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.config import load_job
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.errors import CheckpointError
from fedmr_med.evaluation.history import Best, History
from fedmr_med.models.model_file import load_model
from fedmr_med.prototypes import Prototypes
from fedmr_med.runner import Federation
from fedmr_med.schema import dump_yaml
from fedmr_med.server.checkpoint import load_checkpoint, save_checkpoint
from fedmr_med.server.state import GlobalState
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.errors import raises
from tests.helpers.small import OPEN, initial_state, small_job

OLD = Path(__file__).parent / "data" / "checkpoint_441837c"
"""After one of two rounds at bcn and msk, written by commit 441837c, whose digests covered all defaults."""


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
    with pytest.raises(CheckpointError, match=r"c\.pt belongs to another configuration .*train\.lr: 0\.001 -> 0\.5"):
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


@pytest.mark.parametrize("defaults", [True, False])
def test_a_checkpoint_of_an_earlier_version_is_resumed_to_its_end(tmp_path: Path, defaults: bool) -> None:
    job = load_job(OLD / "fedmr.yaml")
    (tmp_path / "fedmr.yaml").write_text(dump_yaml(job, defaults=defaults))
    shutil.copy(OLD / "checkpoint.pt", tmp_path)
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index(name)), policy=OPEN)
        for name in ("bcn", "msk")
    }
    rounds: list[int] = []
    ended = Federation(load_job(tmp_path / "fedmr.yaml"), sites, tmp_path).run(lambda state: rounds.append(state.round))
    assert rounds == [2]
    assert [record.round for record in ended.history.rounds] == [1, 2]
    again = load_checkpoint(tmp_path / "checkpoint.pt", job, initial_state(job))
    assert again.history == ended.history, "written anew, in the form of this version"


def test_a_checkpoint_of_an_earlier_version_is_refused_for_other_settings() -> None:
    job = load_job(OLD / "fedmr.yaml").override({"train": {"momentum": 0.5}})
    with pytest.raises(CheckpointError, match=r"another configuration .*train\.momentum: 0\.9 -> 0\.5"):
        load_checkpoint(OLD / "checkpoint.pt", job, initial_state(job))
