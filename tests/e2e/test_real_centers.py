"""Survey, subgroups and a comparison of two models, in FLARE's simulator on three real centers of Fed-ISIC2019.

What the server says is compared with scikit-learn and scipy on the pooled test images of the centers.
"""

import csv
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, recall_score

from fedmr_med.data.flamby_isic import CLASS_NAMES, HOSPITALS, RAW_FOLDER
from fedmr_med.inference.predict import load_model
from fedmr_med.jobs.new import new_job
from fedmr_med.runner.federation import Federation
from fedmr_med.server.chain import BEST_MODEL
from tests.helpers.command_line import run
from tests.helpers.simulator import simulate

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1800)]

SITES = ("rosendahl", "vidir-modern", "vienna-dias")
EDGE, KEPT = 32, {"rosendahl": 4, "vidir-modern": 4, "vienna-dias": 1}
"""Edge of the network's images, and of how many training images of a center one is taken."""
SEXES = ("female", "male")
AGES = {"0-39": (0, 40), "40-59": (40, 60), "60+": (60, 200)}
# The images are public, so all numbers may leave: they are compared one by one.
POLICY = """\
data: {source: manifest, root: .}
policy:
  {share_survey: images, share_subgroups: true, share_prototypes: true, share_metrics: per_class,
   min_class_count: 1, min_cell_count: 1, round_samples: 1, training: null}
"""

Row = dict[str, str]


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> dict[str, list[Row]]:
    """The rows of each center: image, label, fold, lesion, sex and age; one lesion is in one fold."""
    source = shared_data / "fed_isic2019"
    with (source / "HAM10000_metadata.csv").open() as stream:
        patients = {row["image_id"]: row for row in csv.DictReader(stream)}
    with (source / "train_test_split").open() as stream:
        split = list(csv.DictReader(stream))
    tested = {
        patients[row["image"]]["lesion_id"] for row in split if row["fold"] == "test" and row["image"] in patients
    }
    found: dict[str, list[Row]] = {}
    for site in SITES:
        center = str(HOSPITALS.index(site))
        mine = [row | patients[row["image"]] for row in split if row["center"] == center and row["image"] in patients]
        train = [row for row in mine if row["fold"] == "train" and row["lesion_id"] not in tested][:: KEPT[site]]
        found[site] = train + [row for row in mine if row["fold"] == "test"]
    return found


@pytest.fixture(scope="module")
def centers(rows: dict[str, list[Row]], shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each center, with its images, its table and its settings."""
    folder, columns = tmp_path_factory.mktemp("centers"), ("image", "label", "fold", "group", "sex", "age")
    for site, mine in rows.items():
        (folder / site).mkdir()
        (folder / site / "site.yaml").write_text(POLICY)
        with (folder / site / "manifest.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(columns)
            for row in mine:
                name, label = f"{row['image']}.jpg", CLASS_NAMES[int(row["target"])]
                shutil.copy(shared_data / "fed_isic2019" / RAW_FOLDER / name, folder / site)
                writer.writerow((name, label, row["fold"], row["lesion_id"], row["sex"], row["age"]))
    return folder


@pytest.fixture(scope="module")
def models(centers: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models: of 120 steps at each center, and of five."""
    folder = tmp_path_factory.mktemp("models")
    shared = {"task.image_size": EDGE, "model.name": "small_cnn", "train.batch_size": 32, "train.optimizer": "adam"}
    for name, changes in {
        "first": {"federation.rounds": 3, "train.updates": 40, "train.lr": 0.002},
        "second": {"federation.rounds": 1, "train.updates": 5, "train.lr": 0.0001},
    }.items():
        job, sites = new_job(name, centers, CLASS_NAMES, method="fedavg", changes=shared | changes)
        Federation(job, sites, folder / name).run()
    return folder / "first" / BEST_MODEL, folder / "second" / BEST_MODEL


@pytest.fixture(scope="module")
def answers(rows: dict[str, list[Row]], centers: Path, models: tuple[Path, Path]) -> list[np.ndarray]:
    """The answer of each model to each test image, center by center."""
    found = []
    for model in models:
        predictor, said = load_model(model), []
        for site in SITES:
            table = {one.image: one for one in predictor.predict(centers / site / "manifest.csv")}
            said += [int(table[f"{row['image']}.jpg"].logits.argmax()) for row in scored_rows(rows[site])]
        found.append(np.array(said))
    return found


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """A function that makes a job by a command, runs it in the simulator and returns the history in its results."""

    def ask(*command: str) -> dict[str, Any]:
        assert run(monkeypatch, *command) == 0
        job = next(tmp_path.rglob("meta.json")).parent
        done = simulate(job, tmp_path / "run", "-t", "2", environment={"FEDMR_MED_CACHE": str(tmp_path / "cache")})
        assert done.exit_code == 0, done.output[-3000:]
        assert (done.workspace / "report.html").is_file()
        return dict(json.loads((done.chain / "results.json").read_text())["runs"][0]["history"])

    return ask


def scored_rows(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["fold"] == "test"]


def test_a_survey_counts_and_measures_what_the_centers_hold(
    rows: dict[str, list[Row]], centers: Path, tmp_path: Path, told: Callable[..., dict[str, Any]]
) -> None:
    options = ["--sites", str(centers), "--classes", ",".join(CLASS_NAMES), "--out", str(tmp_path / "jobs")]
    levels = "task.subgroups={sex: [female, male], age: [0-39, 40-59, 60+]}"
    changes = ["--set", levels, "--set", f"task.image_size={EDGE}", "--set", "federation.min_sites=3"]
    survey = told("jobs", "new", "--survey", "--name", "before", *options, *changes)["survey"]
    for site in SITES:
        for fold in ("train", "test"):
            counts = Counter(int(row["target"]) for row in rows[site] if row["fold"] == fold)
            assert survey["sites"][site][fold] == [counts[label] for label in range(len(CLASS_NAMES))]
        pixels = [
            np.asarray(Image.open(centers / site / f"{row['image']}.jpg").convert("L").resize((EDGE, EDGE)), float)
            for row in rows[site]
        ]
        # Brightness of the same pictures by another scaling.
        assert survey["sites"][site]["tones"]["brightness"]["mean"] == pytest.approx(np.mean(pixels) / 255, abs=0.03)
    every = Counter(int(row["target"]) for mine in rows.values() for row in mine if row["fold"] == "train")
    assert survey["total"]["train"] == [every[label] for label in range(len(CLASS_NAMES))]


def test_scores_by_subgroup_are_those_of_the_pooled_images(
    rows: dict[str, list[Row]],
    centers: Path,
    models: tuple[Path, Path],
    answers: list[np.ndarray],
    tmp_path: Path,
    told: Callable[..., dict[str, Any]],
) -> None:
    asked = [f"--subgroup=sex={','.join(SEXES)}", f"--subgroup=age={','.join(AGES)}"]
    job = ["--job", str(tmp_path / "job"), "--sites", str(centers)]
    scored = told("evaluate", str(models[0]), *job, *asked)["evaluations"][-1]
    pooled = [row for site in SITES for row in scored_rows(rows[site])]
    truth = np.array([int(row["target"]) for row in pooled])
    masks = {("sex", level): np.array([row["sex"] == level for row in pooled]) for level in SEXES}
    for level, (low, high) in AGES.items():
        masks["age", level] = np.array([bool(row["age"]) and low <= float(row["age"]) < high for row in pooled])
    for (column, level), mask in masks.items():
        matrix = np.array(scored["subgroups"][column][level]["figures"]["confusion"])
        assert matrix.sum() == mask.sum()
        found = np.diag(matrix) / np.maximum(matrix.sum(1), 1)
        present = np.unique(truth[mask])
        expected = recall_score(truth[mask], answers[0][mask], labels=present, average=None)
        assert found[present] == pytest.approx(expected)


def test_a_comparison_is_that_of_the_pooled_images(
    rows: dict[str, list[Row]],
    centers: Path,
    models: tuple[Path, Path],
    answers: list[np.ndarray],
    tmp_path: Path,
    told: Callable[..., dict[str, Any]],
) -> None:
    first, second = map(str, models)
    job = ["--job", str(tmp_path / "job"), "--sites", str(centers)]
    found = told("evaluate", first, "--against", second, *job)["evaluations"][-1]["against"]
    truth = np.array([int(row["target"]) for site in SITES for row in scored_rows(rows[site])])
    difference = balanced_accuracy_score(truth, answers[0]) - balanced_accuracy_score(truth, answers[1])
    assert found["difference"]["value"] == pytest.approx(difference, abs=1e-4)
    assert found["difference"]["low"] < difference < found["difference"]["high"]
    right = [said == truth for said in answers]
    for label, one in enumerate(found["classes"]):
        alone = [
            int((right[0] & ~right[1] & (truth == label)).sum()),
            int((right[1] & ~right[0] & (truth == label)).sum()),
        ]
        assert [one["first"], one["second"]] == alone
        if sum(alone):
            assert one["p"] == pytest.approx(binomtest(alone[0], sum(alone), 0.5).pvalue, abs=1e-4)
