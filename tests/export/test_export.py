"""What leaves runs elsewhere: in MONAI's own runner and in onnxruntime, with the logits of the model file."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.bundle import ConfigWorkflow

from fedmr_med.data.image_files import find_images
from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.export import EXPORTERS, Source
from fedmr_med.export.card import Card, make_card
from fedmr_med.export.onnx_file import OPSET
from fedmr_med.inference.evaluate import evaluation_job
from fedmr_med.inference.predict import Predictor
from fedmr_med.models.model_file import load_model, save_model
from fedmr_med.models.provenance import Provenance
from tests.export.conftest import MONAI, python
from tests.helpers.command_line import call
from tests.helpers.errors import raises
from tests.helpers.pictures import read_csv, write_csv
from tests.helpers.small import initial_state, small_job

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bundle(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "bundle"
    call("export", run / "best_model.pt", "-o", folder, "--onnx")
    return folder


def test_monais_runner_gives_the_logits_of_the_model_file(run: Path, pictures: Path, bundle: Path) -> None:
    python(bundle, *MONAI, "run", "--config_file", "configs/inference.json", "--dataset_dir", str(pictures))
    rows = {row["image"]: row for row in read_csv(bundle / "predictions.csv")}
    saved = load_model(run / "best_model.pt")
    expected = list(Predictor(saved)(find_images(pictures)))
    assert set(rows) == {prediction.image for prediction in expected}
    for prediction in expected:
        row = rows[prediction.image]
        assert bool(row["error"]) == bool(prediction.error)
        if not prediction.error:
            found = [float(row[f"logit_{name}"]) for name in saved.job.task.class_names]
            np.testing.assert_allclose(found, prediction.logits, rtol=1e-6, atol=1e-5)


def test_monais_runner_evaluates_a_manifest(bundle: Path, pictures: Path) -> None:
    rows: list[tuple[object, ...]] = [("a.png", "MEL", "test"), ("b.jpg", "NV", "test"), ("c.tiff", "NV", "train")]
    write_csv(pictures / "manifest.csv", ("image", "label", "fold"), rows)
    python(
        bundle, *MONAI, "run", "--config_file", "configs/evaluate.json", "--manifest", str(pictures / "manifest.csv")
    )
    (result,) = read_result(bundle / "evaluation" / "results.json", RunResults).runs
    assert result.history.evaluations[0].figures["here"].samples == 2


def test_monai_finds_the_network_to_be_what_the_metadata_says(bundle: Path) -> None:
    files = ["--meta_file", "configs/metadata.json", "--config_file", "configs/inference.json"]
    python(bundle, *MONAI, "verify_net_in_out", "--net_id", "network_def", *files, "--device", "cpu")


WITHOUT_THE_TOOLKIT = """
import sys, warnings
warnings.simplefilter("ignore")
sys.modules["fedmr_med"] = None  # importing it fails from here on
import torch
from monai.bundle import ckpt_export
files = {"config_file": "configs/inference.json", "meta_file": "configs/metadata.json"}
ckpt_export("network_def", filepath="models/exported.ts", ckpt_file="models/model.pt", **files)
images = torch.load("images.pt")
torch.save(torch.jit.load("models/exported.ts")(images), "logits.pt")
"""


def test_the_bundle_has_every_property_that_monai_asks_of_one_for_inference(bundle: Path, pictures: Path) -> None:
    files = {"config_file": str(bundle / "configs/inference.json"), "meta_file": str(bundle / "configs/metadata.json")}
    place = {"bundle_root": str(bundle), "dataset_dir": str(pictures)}
    workflow = ConfigWorkflow(**files, workflow_type="inference", **place)
    workflow.initialize()
    assert workflow.check_properties() == []


def test_monai_loads_and_exports_the_bundle_without_this_toolkit(run: Path, bundle: Path) -> None:
    saved = load_model(run / "best_model.pt")
    size = saved.job.task.image_size
    images = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(0))
    torch.save(images, bundle / "images.pt")
    python(bundle, "-c", WITHOUT_THE_TOOLKIT)
    expected = saved.network()(images)[1]
    torch.testing.assert_close(torch.load(bundle / "logits.pt"), expected, rtol=1e-5, atol=1e-4)
    outputs = json.loads((bundle / "configs" / "metadata.json").read_text())["network_data_format"]["outputs"]
    assert outputs["pred"]["type"] == "logits"


def test_onnxruntime_gives_the_same_logits_for_any_number_of_images(run: Path, bundle: Path) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path = str(bundle / "models" / "model.onnx")
    assert onnx.load(path).opset_import[0].version == OPSET
    facts = {item.key: item.value for item in onnx.load(path).metadata_props}
    saved = load_model(run / "best_model.pt")
    assert facts["class_names"].split(",") == list(saved.job.task.class_names)
    session, size = onnxruntime.InferenceSession(path), saved.job.task.image_size
    for count in (1, 3):
        images = torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(count))
        (found,) = session.run(["logits"], {"image": images.numpy()})
        # The logits of these images are about 100, of which float32 has seven digits.
        np.testing.assert_allclose(found, saved.network()(images)[1].detach().numpy(), rtol=1e-5, atol=1e-4)


def test_the_card_tells_what_the_run_tells(run: Path, bundle: Path) -> None:
    card = Card.model_validate_json((bundle / "docs" / "model_card.json").read_text())
    assert set(card.sites) == {"bcn", "rosendahl"}
    assert "auroc" in card.pooled.metrics
    assert card.sites["bcn"].shared_prototypes
    assert card.model_sha256 == Source.open(run / "best_model.pt").digest
    text = (bundle / "docs" / "README.md").read_text()
    for words in ("Intended use and limits", "bcn", "MEL", "95 %", "SHA-256", "Not answered by the run"):
        assert words in text
    assert json.loads((bundle / "configs" / "metadata.json").read_text())["model_sha256"] == card.model_sha256


def test_a_model_without_results_says_so(tmp_path: Path) -> None:
    job = small_job()
    save_model(tmp_path / "m.pt", initial_state(job).model, job, round_number=0)
    card = make_card(Source.open(tmp_path / "m.pt"))
    assert card.pooled is None
    assert any("No results" in line for line in card.limits)


def test_a_demo_model_says_so_wherever_it_is_copied(run: Path, pictures: Path, tmp_path: Path) -> None:
    alone = tmp_path / "copied.pt"  # without results.json beside it
    shutil.copy(run / "best_model.pt", alone)
    folder = tmp_path / "bundle"
    call("export", alone, "-o", folder, "--onnx")
    assert "DEMO" in (folder / "docs" / "README.md").read_text()
    metadata = json.loads((folder / "configs" / "metadata.json").read_text())
    assert metadata["description"].startswith("DEMO")
    assert metadata["provenance"]["job"] == load_model(alone).job.digest()
    onnx = pytest.importorskip("onnx")
    facts = {item.key: item.value for item in onnx.load(str(folder / "models" / "model.onnx")).metadata_props}
    assert facts["demo"].startswith("DEMO")
    assert "DEMO" in call("predict", alone, pictures, "-o", tmp_path / "p.csv").stderr


def test_a_global_model_without_batchnorm_layers_of_its_own_is_refused(tmp_path: Path) -> None:
    job = small_job(model={"name": "resnet18"}, federation={"buffers": "local"})
    state, path = initial_state(job), tmp_path / "m.pt"
    save_model(path, state.model, job, round_number=1)
    uses = (Predictor, lambda saved: evaluation_job(saved, {}), lambda _: call("export", path, "-o", tmp_path / "b"))
    for use in uses:
        with raises("model.own-layers", "federation.buffers"):
            use(load_model(path))
    of_site = Provenance.of(job, site="bcn")
    save_model(path, state.model, job, round_number=1, provenance=of_site)
    load_model(path).network()  # a site's own model has the layers it was trained with


def test_exporters_go_by_name() -> None:
    assert EXPORTERS.names()[:3] == ("bundle", "card", "onnx")
    with raises("config.unknown-name", "exporter"):
        EXPORTERS.get("bundel")
