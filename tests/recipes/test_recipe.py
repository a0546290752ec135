"""Recipes without running them: the job folder, the arguments, what FLARE's helpers add."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from nvflare.recipe.utils import add_experiment_tracking, add_final_global_evaluation, set_per_site_config

from fedmr_med import FedMRRecipe, MethodRecipe, models
from fedmr_med.config import JobConfig, StopConfig, load_job
from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.models.job_network import build_network
from fedmr_med.server.state import initial_state
from tests.helpers import REPOSITORY
from tests.helpers.command_line import run
from tests.helpers.errors import raises
from tests.recipes.hello_pt.model import SimpleNetwork

OWN = {"class_names": ["upright", "flat"], "image_size": 16, "channels": 1}
CIFAR = {"class_names": [str(number) for number in range(10)], "image_size": 32}
SITE = {"data": {"source": "manifest", "root": "/data"}, "policy": {"share_prototypes": True}}


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def assert_same_folder(one: Path, other: Path) -> None:
    assert files(one) == files(other)
    assert filecmp.cmpfiles(one, other, files(one), shallow=False)[1:] == ([], [])


def test_the_folder_is_the_one_that_jobs_write_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--dataset", "fmnist", "--method", "moon", "--rounds", "3", "--name", "ours", "--model", "small_cnn"]
    changed = ["--set", "train.lr=0.05", "--set", "moon.mu=2", "--set", "federation.min_sites=4"]
    run(monkeypatch, "jobs", "write", *options, *changed, "--out", str(tmp_path / "cli"))
    recipe = MethodRecipe(
        name="ours",
        method="moon",
        task="fmnist",
        model="small_cnn",
        min_clients=4,
        num_rounds=3,
        train={"lr": 0.05},
        method_options={"mu": 2},
    )
    recipe.export(str(tmp_path / "recipe"))
    assert_same_folder(tmp_path / "cli" / "ours", tmp_path / "recipe" / "ours")


def test_so_is_that_of_the_hospitals(tmp_path: Path) -> None:
    recipe = FedMRRecipe(name="isic_fedmr", min_clients=4, num_rounds=9, sites=REPOSITORY / "sites")
    recipe.export(str(tmp_path))
    assert_same_folder(REPOSITORY / "jobs" / "isic_fedmr", tmp_path / "isic_fedmr")


def own(**arguments: object) -> FedMRRecipe:
    return FedMRRecipe(task=OWN, model="small_cnn", min_clients=1, **arguments)


def exported(recipe: MethodRecipe, folder: Path) -> tuple[JobConfig, Path]:
    recipe.export(str(folder))
    return load_job(folder / recipe.name / "app" / "config" / "fedmr.yaml"), folder / recipe.name


def test_what_flares_helpers_add_is_in_the_folder(tmp_path: Path) -> None:
    recipe = own(sites={"a": SITE})
    add_experiment_tracking(recipe, "tensorboard")
    add_final_global_evaluation(recipe)
    recipe.add_client_config({"extra": 1})
    _, folder = exported(recipe, tmp_path)
    server, client = (
        json.loads((folder / f"app/config/config_fed_{s}.json").read_text()) for s in ("server", "client")
    )
    workflows = [part["path"].rsplit(".", 1)[1] for part in server["workflows"]]
    assert workflows == ["FedMRController", "CrossSiteModelEval"]
    components = {part["id"]: part["path"].rsplit(".", 1)[1] for part in server["components"]}
    assert components["receiver"] == "TBAnalyticsReceiver"
    assert components[server["workflows"][1]["args"]["model_locator_id"]] == "GlobalModelLocator"
    assert client["extra"] == 1
    assert files(folder / "app" / "custom") == ["README"], "no code of ours travels"


def test_early_stopping_has_flares_names(tmp_path: Path) -> None:
    job, _ = exported(own(stop_cond="accuracy >= 0.9", patience=3, key_metric="accuracy"), tmp_path)
    assert job.federation.stop == StopConfig(condition="accuracy >= 0.9", patience=3, metric="accuracy")


def test_sites_come_from_either_name_and_from_flares_helper(tmp_path: Path) -> None:
    late = own()
    set_per_site_config(late, {"a": SITE, "b": SITE})
    for number, recipe in enumerate(
        (own(sites={"a": SITE, "b": SITE}), own(per_site_config={"a": SITE, "b": SITE}), late)
    ):
        _, folder = exported(recipe, tmp_path / str(number))
        assert json.loads((folder / "meta.json").read_text())["deploy_map"] == {"app": ["server", "a", "b"]}
        assert (folder / "app/config/sites/b/site.yaml").exists()


def test_sites_with_settings_of_their_own_are_named_alone_or_not_at_all(tmp_path: Path) -> None:
    for sites, mapped in ((["a", "b"], ["server", "a", "b"]), (None, ["@ALL"])):
        _, folder = exported(own(sites=sites), tmp_path / mapped[0])
        assert json.loads((folder / "meta.json").read_text())["deploy_map"] == {"app": mapped}
        assert not (folder / "app/config/sites").exists()


def test_a_class_or_flares_dictionary_names_the_network(tmp_path: Path) -> None:
    path = "fedmr_med.models.small_cnn.SmallCNN"
    for number, model in enumerate((models.small_cnn.SmallCNN, {"class_path": path, "args": {"width": 4}})):
        recipe = FedMRRecipe(task=OWN, model=model, min_clients=1)
        job, _ = exported(recipe, tmp_path / str(number))
        assert (job.model.name, job.model.options) == (path, {"width": 4} if number else {})
        assert isinstance(build_network(job), models.small_cnn.SmallCNN)


def test_weights_to_start_from_travel_with_the_job(tmp_path: Path) -> None:
    weights = build_network(own().settings.override({"seed": 7})).state_dict()
    torch.save(weights, tmp_path / "weights.pt")
    job, folder = exported(own(initial_ckpt=tmp_path / "weights.pt"), tmp_path)
    carried = folder / "app/config/initial_model.pt"
    assert all((initial_state(job, carried).model[name] == value.numpy()).all() for name, value in weights.items())
    assert not all((initial_state(job).model[name] == value.numpy()).all() for name, value in weights.items())
    torch.save({"other": torch.zeros(2)}, carried)
    with raises("checkpoint.other-model", "conv1.weight"):
        initial_state(job, carried)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"stop_cond": "accuracy >= 80"}, ("config.value", "federation.stop.condition")),
        ({"key_metric": "f1", "patience": 2}, ("config.literal-error", "federation.stop.metric")),
        ({"model": torch.nn.Linear(2, 2)}, ("config.value", "model")),
        ({"train_script": __file__, "task": None}, ("config.missing", "task")),
        ({"model": "small_cn"}, ("config.unknown-name", "model.name")),
        ({"initial_ckpt": "/nowhere.pt"}, ("file.missing", "initial_ckpt")),
        ({"sites": {"a": {"data": {"source": "nothing"}}}}, ("config.union-tag-invalid", "data")),
        ({"sites": {"a": SITE}, "per_site_config": {"a": SITE}}, ("config.conflict", "sites")),
        ({"train": {"speed": 1}}, ("config.unknown-key", "train.speed")),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_key(arguments: dict[str, object], fault: tuple[str, ...]) -> None:
    with raises(*fault):
        FedMRRecipe(**({"task": OWN, "model": "small_cnn", "min_clients": 1} | arguments))


def test_all_arguments_that_cannot_be_used_are_named_at_once() -> None:
    with raises("config.conflict", "sites") as caught:
        FedMRRecipe(
            min_clients=2,
            model=torch.nn.Linear(2, 2),
            train_script="nowhere.py",
            initial_ckpt="nowhere.pt",
            sites=["a"],
            per_site_config={"a": SITE},
        )
    for name in ("sites", "task", "model", "nowhere.py", "nowhere.pt"):
        assert name in str(caught.value)


def test_an_instance_of_a_network_brings_its_weights(tmp_path: Path) -> None:
    torch.manual_seed(5)
    network = SimpleNetwork()
    job, folder = exported(FedMRRecipe(task=CIFAR, model=network, min_clients=1), tmp_path)
    start = initial_state(job, folder / "app/config/initial_model.pt").model
    for name, value in models.wrap(network).state_dict().items():
        torch.testing.assert_close(torch.as_tensor(start[name]), value)


@pytest.mark.nightly
@pytest.mark.slow
def test_flares_hello_pt_runs_with_this_recipe_in_the_place_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "hello"
    shutil.copytree(Path(__file__).parent / "hello_pt", source, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "job.py", str(tmp_path / "workspace")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = read_result(next(tmp_path.rglob("simulate_job/results.json")), RunResults).runs
    assert found.history is not None
    assert [sorted(record.sites) for record in found.history.rounds] == [["site-1", "site-2"]] * 2
    assert not any(part.shared_classes for record in found.history.rounds for part in record.sites.values())
