"""What training saw is what every use of a model sees: a raw picture gets the probabilities of its prepared file."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med import data
from fedmr_med.config import PreparationConfig
from fedmr_med.data.flamby_isic import CLASS_NAMES, PREPARED_FOLDER, RAW_FOLDER, SPLIT_FILE
from fedmr_med.data.image_files import ImageReader, find_images
from fedmr_med.data.prepare_isic import prepare_isic
from fedmr_med.data.transforms import IsicTest
from fedmr_med.evaluation.clinical import softmax
from fedmr_med.inference.predict import Predictor
from fedmr_med.models.model_file import SavedModel, load_model, save_model
from tests.export.conftest import MONAI, python
from tests.helpers import REPOSITORY
from tests.helpers.command_line import call
from tests.helpers.errors import raises
from tests.helpers.pictures import flamby_site, manifest_site, read_csv, write_csv, write_picture, write_split
from tests.helpers.small import initial_state, small_job

SIZE, EDGE = 200, 224
pytestmark = pytest.mark.slow

SAME = {"rtol": 0, "atol": 1e-4}


@dataclass(frozen=True)
class Case:
    """A model, raw pictures, their prepared files, and what the training path makes of these: (n, C)."""

    model: Path
    raw: Path
    prepared: Path
    names: tuple[str, ...]
    expected: np.ndarray

    @property
    def saved(self) -> SavedModel:
        return load_model(self.model)


def draw(folder: Path) -> None:
    """Draw photographs in warm light, of several sizes."""
    for seed, size in enumerate([(600, 450), (450, 600), (1024, 768), (300, 260)]):
        write_picture(folder / f"ISIC_{seed}.jpg", size=size, seed=seed)


def copy_some(raw: Path, folder: Path) -> None:
    """Copy every two-thousandth real photograph."""
    if not raw.is_dir():
        pytest.skip("no images of Fed-ISIC2019 beside the checkout")
    folder.mkdir(parents=True)
    for path in sorted(raw.glob("*.jpg"))[::2000]:
        shutil.copy(path, folder)


@pytest.fixture(scope="module", params=["drawn", "real"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    root = tmp_path_factory.mktemp("isic")
    if request.param == "drawn":
        draw(root / RAW_FOLDER)
    else:
        copy_some(request.getfixturevalue("shared_data") / "fed_isic2019" / RAW_FOLDER, root / RAW_FOLDER)
    names = sorted(path.stem for path in (root / RAW_FOLDER).glob("*.jpg"))
    write_split(root / SPLIT_FILE, [(name, label % 8, 0, "train") for label, name in enumerate(names)])
    prepare_isic(root, root / "target")
    task = {"image_size": SIZE, "preparation": {"version": 1, "edge": EDGE}}
    job = small_job("fedavg", task=task)
    model = initial_state(job).model
    # Louder than a fresh network, whose probabilities are all alike.
    generator = np.random.default_rng(0)
    model["classifier.weight"] = generator.normal(size=model["classifier.weight"].shape).astype(np.float32) * 3
    save_model(root / "model.pt", model, job, round_number=1)
    network = load_model(root / "model.pt").network()
    fold = data.load(flamby_site(root / "target", 0), job.task, seed=0).train
    with torch.no_grad():
        images = np.stack([IsicTest(SIZE)(fold[index], 0) for index in range(len(fold))])
        expected = softmax(network(torch.from_numpy(images))[1].double().numpy())
    files = tuple(f"{name}.jpg" for name in names)
    yield Case(root / "model.pt", root / RAW_FOLDER, root / "target" / PREPARED_FOLDER, files, expected)


def probabilities(case: Case, place: Path, *, prepared: bool) -> np.ndarray:
    found = {p.image: p.probabilities for p in Predictor(case.saved, prepared=prepared)(find_images(place))}
    return np.stack([found[name] for name in case.names])


def test_predict_on_raw_pictures_is_what_training_saw(case: Case) -> None:
    np.testing.assert_allclose(probabilities(case, case.raw, prepared=False), case.expected, **SAME)
    np.testing.assert_allclose(probabilities(case, case.prepared, prepared=True), case.expected, **SAME)
    # The preparation matters for these pictures and this network, or the comparison would prove nothing.
    assert np.abs(probabilities(case, case.raw, prepared=True) - case.expected).max() > 0.01


def test_the_commands_prepare_raw_pictures_and_leave_prepared_ones(case: Case, tmp_path: Path) -> None:
    for place, option in ((case.raw, []), (case.prepared, ["--prepared"])):
        call("predict", case.model, place, "-o", tmp_path / "p.csv", *option)
        np.testing.assert_allclose(table(tmp_path / "p.csv", case), case.expected, **SAME)
        rows = [(name, CLASS_NAMES[0], "test") for name in case.names]
        write_csv(place / "manifest.csv", ("image", "label", "fold"), rows)
        call("evaluate", case.model, place, "-o", tmp_path / "e", *option)
        (place / "manifest.csv").unlink()
        np.testing.assert_allclose(table(tmp_path / "e" / "predictions.csv", case), case.expected, **SAME)


def test_a_site_with_raw_pictures_trains_on_the_same_pixels(case: Case) -> None:
    task, rows = case.saved.job.task, [(name, CLASS_NAMES[0], "train") for name in case.names]
    pixels = []
    for place, prepared in ((case.raw, False), (case.prepared, True)):
        write_csv(place / "manifest.csv", ("image", "label", "fold"), rows)
        fold = data.load(manifest_site(place, prepared=prepared), task, seed=0).train
        (place / "manifest.csv").unlink()
        pixels.append([fold[index] for index in range(len(fold))])
    for one, other in zip(*pixels, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def bundle(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "bundle"
    call("export", case.model, "-o", folder, "--onnx")
    return folder


@pytest.mark.parametrize("prepared", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_monais_runner_prepares_raw_pictures_alone(case: Case, bundle: Path, prepared: bool) -> None:
    place, option = (case.prepared, ["--prepared", "True"]) if prepared else (case.raw, [])
    python(bundle, *MONAI, "run", "--config_file", "configs/inference.json", "--dataset_dir", str(place), *option)
    np.testing.assert_allclose(table(bundle / "predictions.csv", case), case.expected, **SAME)


def test_onnx_after_the_documented_step(case: Case, bundle: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = str(bundle / "models" / "model.onnx")
    session = onnxruntime.InferenceSession(model)
    facts = session.get_modelmeta().custom_metadata_map
    assert PreparationConfig.model_validate_json(facts["preparation"]).edge == EDGE
    prepare = ImageReader(case.saved.job.task)
    images = np.stack([prepare(case.raw / name).numpy() for name in case.names])
    (logits,) = session.run(["logits"], {"image": images})
    np.testing.assert_allclose(softmax(logits.astype(np.float64)), case.expected, **SAME)
    # The same in the words of docs/clinical.md, which need nothing of this toolkit.
    page = (REPOSITORY / "docs" / "clinical.md").read_text(encoding="utf-8")
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "onnxruntime" in block)
    names: dict = {}
    exec(block, names)
    found = np.concatenate([names["probabilities"](model, case.raw / name) for name in case.names])
    np.testing.assert_allclose(found, case.expected, **SAME)


def table(path: Path, case: Case) -> np.ndarray:
    rows = {row["image"]: row for row in read_csv(path)}
    return np.array([[float(rows[name][f"p_{label}"]) for label in CLASS_NAMES] for name in case.names])


def test_a_folder_prepared_with_another_edge_is_refused(tmp_path: Path) -> None:
    write_picture(tmp_path / RAW_FOLDER / "ISIC_0.jpg", size=(300, 260))
    write_split(tmp_path / SPLIT_FILE, [("ISIC_0", 0, 0, "train")])
    prepare_isic(tmp_path, tmp_path / "target", edge=100)
    task = small_job(task={"preparation": {"version": 1, "edge": 224}}).task
    with raises("data.other-settings", "task.preparation.edge"):
        data.load(flamby_site(tmp_path / "target", 0), task, seed=0)


def test_a_preparation_of_another_version_is_refused() -> None:
    with raises("config.literal-error", "task.preparation.version"):
        small_job(task={"preparation": {"version": 2, "edge": 224}})
