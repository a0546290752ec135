"""A dataset, a method, a network and a metric of a package outside the repository, one file each, by entry points."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmr_med import methods
from fedmr_med.methods import PAPER_METHODS
from tests.helpers import REPOSITORY
from tests.helpers.packages import write_package
from tests.helpers.pictures import write_csv
from tests.helpers.simulator import simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DATASET = '''
"""Stripes: small grey pictures, upright or flat."""

import numpy as np

from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.datasets import Dataset, Protocol


def read(dataset, root, task):
    with np.load(root / "stripes.npz") as content:
        train, test = (Fold(content[f"x_{fold}"], content[f"y_{fold}"]) for fold in ("train", "test"))
    return SiteData(train, test, dataset.class_names)


STRIPES = Dataset(
    name="stripes",
    class_names=("upright", "flat"),
    image_size=8,
    channels=1,
    read=read,
    protocol=Protocol("pixels", "plain", rounds=2, split="iid", clients=2),
)
'''
MODEL = '''
"""A network of one hidden layer."""

from torch import nn

from fedmr_med.models import Network


class Pixels(Network):
    def __init__(self, num_classes, in_channels, *, edge=8):
        super().__init__()
        self.feature_size = 16
        self.hidden = nn.Linear(in_channels * edge * edge, self.feature_size)
        self.classifier = nn.Linear(self.feature_size, num_classes)

    def forward(self, x):
        features = self.hidden(x.flatten(1)).relu()
        return features, self.classifier(features)
'''
METHOD = '''
"""FedAvg with weights that are held small."""

from fedmr_med.methods.base import ClientHalf, Method, Options


class ShrinkOptions(Options):
    strength: float = 0.01


class ShrinkClient(ClientHalf):
    def objective(self, batch):
        squares = sum(parameter.square().sum() for parameter in self.parameters.values())
        return super().objective(batch) | {"shrink": self.options.strength * squares}


class FedShrink(Method):
    name = "fedshrink"
    options_type = ShrinkOptions
    client_half = ShrinkClient
'''
METRIC = '''
"""How much better than chance the answers are, and the share of each class among them."""

from fedmr_med.evaluation.base import Metric


def kappa(counts):
    table = counts.confusion / counts.confusion.sum()
    chance = table.sum(0) @ table.sum(1)
    return (table.trace() - chance) / (1 - chance)


def shares(counts):
    return counts.confusion.sum(0) / counts.confusion.sum()


KAPPA = Metric("kappa", "agreement beyond chance", overall=kappa, format=".4f")
ANSWERS = Metric("answers", "share of the answers", by_class=shares, higher_is_better=False)
'''
ENTRIES = {
    "fedmr_med.datasets": {"stripes": "our_stripes:STRIPES"},
    "fedmr_med.models": {"pixels": "our_pixels:Pixels"},
    "fedmr_med.methods": {"fedshrink": "our_fedshrink:FedShrink"},
    "fedmr_med.metrics": {"kappa": "our_metrics:KAPPA", "answers": "our_metrics:ANSWERS"},
}
LISTING = """
import sys
from fedmr_med import methods, models
from fedmr_med.data.datasets import DATASETS
from fedmr_med.evaluation.catalog import METRICS
from fedmr_med.lab.studies.tables import VARIANTS
print(*methods.available(), *models.available(), *DATASETS, *METRICS, *VARIANTS["acc"], sep=",")
assert not any(name.startswith("our_") for name in sys.modules), "listing names must run no code of others"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of somebody who has the package and its data."""
    folder = tmp_path_factory.mktemp("outside")
    modules = {"our_stripes": DATASET, "our_pixels": MODEL, "our_fedshrink": METHOD, "our_metrics": METRIC}
    write_package(folder / "site", "our-parts", modules, ENTRIES)
    generator = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for fold, count in (("train", 40), ("test", 12)):
        labels = np.arange(count) % 2
        stripes = 200 * (np.arange(8) % 2) + generator.integers(0, 50, (count, 8, 8))
        images = np.where(labels[:, None, None] == 0, stripes, stripes.transpose(0, 2, 1))
        arrays |= {f"x_{fold}": images[..., None].astype(np.uint8), f"y_{fold}": labels}
    (folder / "data" / "stripes").mkdir(parents=True)
    np.savez(folder / "data" / "stripes" / "stripes.npz", allow_pickle=False, **arrays)
    path = os.pathsep.join([str(folder / "site"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path, "FEDMR_MED_DATA": str(folder / "data"), "OMP_NUM_THREADS": "1"}


def write_stripes(folder: Path) -> None:
    """Write ten pictures of the dataset as files, with a manifest."""
    folder.mkdir()
    rows: list[tuple[object, ...]] = []
    for number in range(10):
        upright = np.tile(200 * (np.arange(8) % 2), (8, 1)).astype(np.uint8)
        Image.fromarray(upright if number % 2 == 0 else upright.T).save(folder / f"{number}.png")
        rows.append((f"{number}.png", ("upright", "flat")[number % 2], "test"))
    write_csv(folder / "manifest.csv", ("image", "label", "fold"), rows)


def command(*arguments: str | Path, environment: dict[str, str]) -> str:
    """Run a command of this installation; return what it prints on standard output."""
    program = Path(sys.executable).with_name(str(arguments[0]))
    done = subprocess.run(
        [program, *arguments[1:]], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_they_are_listed_after_our_own_and_join_no_table_of_the_paper(installed: dict[str, str]) -> None:
    names = command("python", "-c", LISTING, environment=installed).strip().split(",")
    ours = [name for name in methods.available() if name != "fedshrink"]
    assert names[: len(ours) + 1] == [*ours, "fedshrink"]
    assert {"pixels", "stripes", "kappa", "answers"} <= set(names)
    assert names[-len(PAPER_METHODS) :] == list(PAPER_METHODS)


def test_bench_compares_them(installed: dict[str, str], tmp_path: Path) -> None:
    options = ["--dataset", "stripes", "--epochs", "2", "--workers", "1", "--set", "train.batch_size=8"]
    asked = ["--methods", "fedavg,fedmr,fedshrink", "--set", "fedshrink.strength=0.001"]
    printed = command("fedmr-med", "bench", *options, *asked, "--out", tmp_path, "--json", environment=installed)
    runs = {run["method"]: run for run in json.loads(printed)["runs"]}
    assert list(runs) == ["fedavg", "fedmr", "fedshrink"]
    assert all(run["dataset"] == "stripes" and run["model"] == "pixels" for run in runs.values())
    assert all(len(run["rounds"]) == 2 and run["best_accuracy"] > 0.9 for run in runs.values())
    assert runs["fedshrink"]["options"] == {"strength": 0.001}
    assert runs["fedshrink"]["rounds"][0]["terms"]["shrink"] > 0
    for run in runs.values():
        # Two classes of the same size: chance is one half, whatever the answers are.
        assert [r["metrics"]["kappa"] for r in run["rounds"]] == pytest.approx(
            [2 * r["accuracy"] - 1 for r in run["rounds"]], abs=1e-4
        )
    assert "agreement beyond chance" in (tmp_path / "report.html").read_text()


@pytest.mark.nightly
def test_the_simulator_runs_them(installed: dict[str, str], tmp_path: Path) -> None:
    options = ["--dataset", "stripes", "--method", "fedshrink", "--set", "train.batch_size=8", "--rounds", "1"]
    command("fedmr-med", "jobs", "write", *options, "--name", "ours", "--out", tmp_path, environment=installed)
    done = simulate(tmp_path / "ours", tmp_path / "workspace", "-t", "2", environment=installed)
    assert done.exit_code == 0, done.output[-3000:]
    (result,) = json.loads((done.chain / "results.json").read_text())["runs"]
    assert (result["dataset"], result["method"]) == ("stripes", "fedshrink")
    assert result["rounds"][-1]["accuracy"] > 0.9
    last = result["history"]["evaluations"][-1]
    assert last["metrics"]["kappa"] == last["pooled_figures"]["metrics"]["kappa"]["value"] > 0.8
    shares = [found["metrics"]["answers"]["value"] for found in last["pooled_figures"]["classes"]]
    assert sum(shares) == pytest.approx(1)

    command("fedmr-med", "report", done.chain, "-o", tmp_path / "report.html", environment=installed)
    page = (tmp_path / "report.html").read_text()
    assert "agreement beyond chance" in page and "share of the answers" in page
    assert f"{last['metrics']['kappa']:.4f}" in page, "in the format of the metric"

    write_stripes(tmp_path / "clinic")
    judged = ["evaluate", done.chain / "best_model.pt", tmp_path / "clinic", "-o", tmp_path / "judged"]
    printed = command("fedmr-med", *judged, environment=installed)
    assert "agreement beyond chance: 1.0000" in printed
    assert "agreement beyond chance" in (tmp_path / "judged" / "report.html").read_text()
    (result,) = json.loads((tmp_path / "judged" / "results.json").read_text())["runs"]
    assert result["history"]["evaluations"][0]["metrics"]["kappa"] == 1
