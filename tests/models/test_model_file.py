"""A model file is all that is needed to build the network again."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.errors import CheckpointError
from fedmr_med.models import load_arrays
from fedmr_med.models.job_network import build_network
from fedmr_med.models.model_file import load_model, read_tensors, read_weights, save_model, write_tensors
from fedmr_med.server.checkpoint import save_checkpoint
from tests.helpers.errors import raises
from tests.helpers.small import initial_state, small_job

JOB = small_job(model={"name": "narrow_resnet", "options": {"width": 8, "blocks": 1}}, seed=3)


@pytest.mark.parametrize("kind", ["model", "checkpoint"])
def test_the_network_is_rebuilt_from_one_file(kind: str, tmp_path: Path) -> None:
    path, state = tmp_path / "m.pt", initial_state(JOB)
    if kind == "model":
        save_model(path, state.model, JOB, round_number=4, balanced_accuracy=0.5)
    else:
        save_checkpoint(path, state, JOB)
    saved = load_model(path)
    original = build_network(JOB)
    load_arrays(original, state.model)
    images = torch.randn(2, 3, 24, 24)
    rebuilt = saved.network()
    assert not rebuilt.training
    assert torch.equal(rebuilt(images)[1], original.eval()(images)[1])
    assert saved.job == JOB
    assert saved.round == (4 if kind == "model" else 0)


def test_a_file_names_classes_and_normalisation_to_programs_that_do_not_know_the_toolkit(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    save_model(path, initial_state(JOB).model, JOB, round_number=4, balanced_accuracy=0.5)
    content = torch.load(path, weights_only=True)
    assert content["class_names"] == list(JOB.task.class_names)
    assert content["normalisation"] == {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    assert content["balanced_accuracy"] == 0.5
    assert load_model(path).about == {"balanced_accuracy": 0.5}


def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"model": {}}, path)
    with raises("file.version", kind=CheckpointError):
        read_tensors(path)
    write_tensors(path, {"format": 2, "model": {}})
    with raises("checkpoint.form"):
        load_model(path)


@pytest.mark.parametrize("kind", ["model", "checkpoint"])
def test_one_flipped_bit_is_seen_wherever_it_is(kind: str, tmp_path: Path) -> None:
    path, state = tmp_path / "m.pt", initial_state(JOB)
    if kind == "model":
        save_model(path, state.model, JOB, round_number=4, balanced_accuracy=0.5)
    else:
        save_checkpoint(path, state, JOB)
    whole, right = path.read_bytes(), read_tensors(path)
    places = np.random.default_rng(0).integers(0, 8 * len(whole), 60)
    refused = 0
    for place in places.tolist():
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            content = read_tensors(path)
        except CheckpointError:
            refused += 1
        else:  # what the archive pads with, or names and dates that nobody reads
            assert all(torch.equal(content["model"][name], array) for name, array in right["model"].items())
            assert repr(content) == repr(right)
    assert refused > 30


def test_a_changed_weight_is_seen_by_both_readers(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    save_model(path, initial_state(JOB).model, JOB, round_number=4)
    content = torch.load(path, weights_only=True)
    next(iter(content["model"].values())).view(-1)[0] += 1
    torch.save(content, path)
    with raises("file.damaged", kind=CheckpointError):
        load_model(path)
    with raises("file.damaged", kind=CheckpointError):
        read_weights(path)


def test_a_file_of_an_earlier_version_has_no_digest_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    save_model(path, initial_state(JOB).model, JOB, round_number=4)
    content = torch.load(path, weights_only=True)
    del content["sha256"]
    torch.save(content, path)
    assert load_model(path).round == 4
