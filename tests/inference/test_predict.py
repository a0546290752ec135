"""Predictions of a model file on images of any kind."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedmr_med
from fedmr_med.data import image_files
from fedmr_med.data.image_files import find_images
from fedmr_med.data.images import decode
from fedmr_med.data.transforms import IsicTest, edge_for
from fedmr_med.errors import DataError
from fedmr_med.inference.gradcam import contributions
from fedmr_med.inference.predict import Predictor
from fedmr_med.models.model_file import SET_THRESHOLDS, load_model, read_tensors, write_tensors
from tests.helpers.command_line import call
from tests.helpers.dicoms import write_dicom
from tests.helpers.errors import raises
from tests.helpers.pictures import read_csv


@pytest.mark.slow
def test_a_probability_per_class_and_a_line_for_what_cannot_be_read(run: Path, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    done = call("predict", run / "best_model.pt", pictures, "-o", out)
    assert done.stderr.count("cannot be read") == 1
    assert "broken.png" in done.stderr
    rows = read_csv(out)
    assert [row["image"] for row in rows] == ["a.png", "b.jpg", "broken.png", "c.tiff", "more/d.png"]
    good = [row for row in rows if not row["error"]]
    assert len(good) == 4
    names = load_model(run / "best_model.pt").job.task.class_names
    for row in good:
        assert sum(float(row[f"p_{name}"]) for name in names) == pytest.approx(1, abs=1e-4)
        assert row["answer"] == max(names, key=lambda name: float(row[f"p_{name}"]))
        assert set(row["nearest"].split()) <= set(names)
        assert row["nearest"]


def test_it_is_what_a_site_computes_for_the_same_image(run: Path, pictures: Path) -> None:
    saved = load_model(run / "best_model.pt")
    size = saved.job.task.image_size
    image = IsicTest(size)(decode(pictures / "a.png", edge_for(size)), 0)
    logits = saved.network()(torch.from_numpy(image)[None])[1].detach().numpy()[0]
    first = next(Predictor(saved)(find_images(pictures / "a.png")))
    np.testing.assert_allclose(first.logits, logits, atol=1e-6)


def test_from_python_a_model_answers_as_the_command_does(run: Path, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    call("predict", run / "best_model.pt", pictures, "-o", out)
    model = fedmr_med.load_model(run / "best_model.pt")
    said = {p.image: model.class_names[p.probabilities.argmax()] for p in model.predict(pictures) if not p.error}
    assert said == {row["image"]: row["answer"] for row in read_csv(out) if not row["error"]}


def test_calibration_is_on_unless_switched_off(run: Path, pictures: Path) -> None:
    saved = load_model(run / "best_model.pt")
    soft, plain = (next(Predictor(saved, calibrated=on)(find_images(pictures))) for on in (True, False))
    again = np.exp(soft.logits / saved.temperature)
    np.testing.assert_allclose(soft.probabilities, again / again.sum(), rtol=1e-9)
    np.testing.assert_allclose(plain.probabilities, np.exp(plain.logits) / np.exp(plain.logits).sum(), rtol=1e-9)


def test_manifests_and_dicom_are_read_too(run: Path, tmp_path: Path) -> None:
    write_dicom(tmp_path / "scan", np.tile(np.arange(0, 4096, 64, dtype=np.uint16), (64, 1)))
    (tmp_path / "list.csv").write_text("image;label\nscan;MEL\n")
    assert find_images(tmp_path / "list.csv").names == ("scan",)
    assert find_images(tmp_path).names == ("scan",)
    assert not next(Predictor(load_model(run / "best_model.pt"))(find_images(tmp_path))).error


def test_overlays_show_what_the_network_saw(run: Path, pictures: Path, tmp_path: Path) -> None:
    call("predict", run / "best_model.pt", pictures, "-o", tmp_path / "p.csv", "--gradcam", tmp_path / "cam")
    assert len(list((tmp_path / "cam").rglob("*.gradcam.png"))) == 4
    assert decode(tmp_path / "cam" / "a.gradcam.png", 24).shape == (24, 24, 3)


def test_the_page_has_every_image_with_the_least_sure_first(run: Path, pictures: Path, tmp_path: Path) -> None:
    call("predict", run / "best_model.pt", pictures, "-o", tmp_path / "p.csv", "--page", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    readable = [row for row in read_csv(tmp_path / "p.csv") if not row["error"]]
    shown = re.findall(r"<br>([^<]+)</figcaption>", page)
    surest = {row["image"]: max(float(value) for key, value in row.items() if key.startswith("p_")) for row in readable}
    assert sorted(shown) == sorted(surest) and shown == sorted(shown, key=surest.__getitem__)
    assert page.count("data:image/jpeg;base64,") == 2 * len(readable), "the image, and where the network looked"
    assert "images of patients" in page and "<script" not in page


class PooledLinear(nn.Module):
    """A network that ends in mean pooling and one linear layer; its feature map is changed in place, as by many."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)
        self.active, self.pool = nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.pool(self.active(self.conv(x))).flatten(1))  # type: ignore[no-any-return]


def test_what_places_add_up_to_is_the_logit_where_pooling_and_a_linear_layer_follow() -> None:
    network, image = PooledLinear(), torch.randn(1, 3, 9, 9)
    places, logits = contributions(network, image), network(image)[0]
    answer = int(logits.argmax())
    assert places.shape == (7, 7)
    torch.testing.assert_close(places.sum(), (logits - network.linear.bias)[answer])
    assert (places[network.active(network.conv(image))[0].sum(0) == 0] == 0).all(), "places that no unit sees"


def test_a_place_without_images_is_refused(tmp_path: Path) -> None:
    with raises("data.empty"):
        find_images(tmp_path)
    with raises("file.missing", kind=DataError):
        find_images(tmp_path / "nowhere")


def test_a_file_that_memory_is_too_small_for_does_not_end_the_folder(
    run: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scarce(path: Path, edge: int, *preparation: object) -> np.ndarray:
        if path.name == "a.png":
            raise MemoryError
        return decode(path, edge)

    monkeypatch.setattr(image_files, "decode", scarce)
    found = {p.image: p.error for p in Predictor(load_model(run / "best_model.pt"))(find_images(pictures))}
    assert found["a.png"]
    assert not found["b.jpg"]


def with_sets(model: Path, to: Path, **sets: object) -> Path:
    """Copy a model file with other thresholds for sets; without any, it has none."""
    content = {key: value for key, value in read_tensors(model).items() if key != SET_THRESHOLDS}
    write_tensors(to, content | ({SET_THRESHOLDS: sets} if sets else {}))
    return to


def test_a_set_of_one_class_is_a_diagnosis_and_any_other_is_unsure(run: Path, pictures: Path, tmp_path: Path) -> None:
    best = run / "best_model.pt"
    names = load_model(best).job.task.class_names
    plain = [p for p in Predictor(load_model(best), calibrated=False)(find_images(pictures)) if not p.error]
    first = plain[0].probabilities
    # Just the most probable class of the first image is in its set.
    least = tuple(float(value) if value == first.max() else min(1.0, 2 * float(value)) for value in first)
    model = with_sets(best, tmp_path / "m.pt", **{"0.9": least, "0.95": (0.0,) * len(names)})
    out, page = tmp_path / "p.csv", tmp_path / "p.html"
    done = call("predict", model, pictures, "-o", out, "--coverage", "0.9", "--page", page, "--json")
    rows = [row for row in read_csv(out) if not row["error"]]
    expected = [
        [name for name, share, edge in zip(names, p.probabilities, least, strict=True) if share >= edge] for p in plain
    ]
    assert [row["set"].split() for row in rows] == expected, "by probabilities that no temperature has changed"
    sure = [found[0] if len(found) == 1 else "unsure" for found in expected]
    assert [row["diagnosis"] for row in rows] == sure and sure[0] == rows[0]["answer"]
    assert json.loads(done.stdout)["sure"] == sum(word != "unsure" for word in sure)
    assert f"{sure[0]}: {{{sure[0]}}}" in page.read_text()
    done = call("predict", model, pictures, "-o", out, "--coverage", "0.95")
    assert {row["diagnosis"] for row in read_csv(out) if not row["error"]} == {"unsure"}
    assert f"in every set: {' '.join(names)}" in done.stdout


def test_a_model_says_for_which_coverages_scores_left_with_it(run: Path, tmp_path: Path) -> None:
    best = run / "best_model.pt"
    assert len(load_model(best).set_thresholds(0.8)) == 8
    with raises("config.value", "--coverage"):
        load_model(best).set_thresholds(0.7)
    with raises("model.no-sets", "--coverage"):
        load_model(with_sets(best, tmp_path / "none.pt")).set_thresholds(0.9)
    for damaged in ((0.1,) * 7, (2.0,) * 8, (float("nan"),) * 8, "no", ("a",) * 8):
        with raises("checkpoint.form", SET_THRESHOLDS):
            load_model(with_sets(best, tmp_path / "bad.pt", **{"0.9": damaged})).set_thresholds(0.9)


def test_sets_are_refused_before_any_answer(run: Path, pictures: Path, tmp_path: Path) -> None:
    model, out = with_sets(run / "best_model.pt", tmp_path / "m.pt"), tmp_path / "p.csv"
    with raises("model.no-sets", "--coverage"):
        call("predict", model, pictures, "-o", out, "--coverage", "0.9")
    with raises("config.conflict", "--sr"):
        call("predict", run / "best_model.pt", pictures, "-o", out, "--coverage", "0.9", "--sr", tmp_path / "sr")
    assert not out.exists()


def test_without_a_coverage_the_table_is_as_before(run: Path, pictures: Path, tmp_path: Path) -> None:
    call("predict", run / "best_model.pt", pictures, "-o", tmp_path / "p.csv")
    assert {"set", "diagnosis"}.isdisjoint(read_csv(tmp_path / "p.csv")[0])
