"""MONAI's network, a dataset and a metric of the user's own, in one file of theirs: in bench, and in a recipe."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import REPOSITORY
from tests.helpers.packages import write_package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

USER_FILE = '''
"""Shapes: upright or flat stripes, with MONAI's DenseNet."""

import sys

import numpy as np
from monai.networks.nets import DenseNet121
from nvflare.recipe import SimEnv
from torch.utils.data import Dataset

from fedmr_med import FedMRRecipe
from fedmr_med.data.datasets import Dataset as Record, Protocol
from fedmr_med.data.own import OwnData, from_torch
from fedmr_med.evaluation.base import Metric
from fedmr_med.evaluation.catalog import register

CLASSES = ("upright", "flat")


class Stripes(Dataset):
    def __init__(self, count, seed):
        self.targets = np.arange(count) % 2
        self.noise = np.random.default_rng(seed).integers(0, 50, (count, 32, 32, 1))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        stripes = 200 * (np.arange(32) % 2)[None, :, None]
        picture = stripes if self.targets[index] == 0 else stripes.transpose(1, 0, 2)
        return (picture + self.noise[index]).astype(np.uint8), self.targets[index]


class Net(DenseNet121):
    """A small DenseNet121."""

    def __init__(self, num_classes, in_channels):
        super().__init__(2, in_channels, num_classes, init_features=8, growth_rate=4)


def images(counts):
    return float(counts.confusion.sum())


register(Metric("images", "test images", images, format=".0f"))


def hospital(task, *, seed):
    """The data of one hospital."""
    return OwnData(Stripes(16, seed), Stripes(8, seed + 100), CLASSES)


def read(dataset, root, task):
    """The whole, for bench."""
    return from_torch(OwnData(Stripes(32, 0), Stripes(8, 1), CLASSES), task)


RECORD = Record(
    name="our_stripes", class_names=CLASSES, image_size=32, channels=1, read=read,
    protocol=Protocol("small_cnn", "plain", rounds=1, split="iid", clients=2),
)

if __name__ == "__main__":
    counts = {"min_class_count": 1, "min_cell_count": 1}
    policy = {"share_prototypes": True, "share_metrics": "per_class", **counts, "training": None}
    data = {"source": "dataset", "factory": "our_file.hospital"}
    sites = {f"site-{k}": {"data": data | {"options": {"seed": k}}, "policy": policy} for k in (1, 2)}
    recipe = FedMRRecipe(
        name="ours", task={"class_names": CLASSES, "image_size": 32, "channels": 1}, model=Net,
        min_clients=2, num_rounds=5, stop_cond="balanced_accuracy >= 0", train={"batch_size": 8}, sites=sites,
    )
    recipe.execute(SimEnv(num_clients=2, workspace_root=sys.argv[1]))
'''


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    variables = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.nightly
def test_bench_takes_both(tmp_path: Path) -> None:
    write_package(
        tmp_path / "site",
        "our-file",
        {"our_file": USER_FILE},
        {"fedmr_med.datasets": {"our_stripes": "our_file:RECORD"}},
    )
    options = ["--dataset", "our_stripes", "--data", str(tmp_path), "--model", "our_file.Net", "--methods", "fedmr"]
    small = ["--epochs", "1", "--workers", "1", "--set", "train.batch_size=8", "--out", str(tmp_path / "out"), "--json"]
    path = os.pathsep.join([str(tmp_path / "site"), str(REPOSITORY)])
    program = Path(sys.executable).with_name("fedmr-med")
    printed = run(program, "bench", *options, *small, cwd=tmp_path, PYTHONPATH=path)
    (result,) = json.loads(printed)["runs"]
    assert (result["dataset"], result["model"]) == ("our_stripes", "our_file.Net")
    assert result["best_accuracy"] is not None
    assert result["rounds"][0]["metrics"]["images"] == 8


@pytest.mark.nightly
def test_a_recipe_simulates_both_from_a_script_that_is_not_installed_and_stops_early(tmp_path: Path) -> None:
    (tmp_path / "our_file.py").write_text(USER_FILE)
    run(sys.executable, "our_file.py", tmp_path / "sim", cwd=tmp_path, PYTHONPATH=str(REPOSITORY))
    chain = tmp_path / "sim" / "ours" / "server" / "chains" / "simulate_job"
    (result,) = json.loads((chain / "results.json").read_text())["runs"]
    record = result["history"]["rounds"][-1]
    assert {site: part["shared_classes"] for site, part in record["sites"].items()} == {
        "site-1": ["upright", "flat"],
        "site-2": ["upright", "flat"],
    }
    assert len(result["rounds"]) == 2, "the first model fulfils the condition, which the second round tells"
    assert np.isfinite(result["best_balanced_accuracy"])
    assert result["rounds"][-1]["metrics"]["images"] == 16
