"""One part of the training images chooses, and the test images are scored once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fedmr_med.config import JobConfig, TaskConfig
from fedmr_med.data.own import OwnData
from fedmr_med.jobs.catalog import own_job
from fedmr_med.models.model_file import load_model
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.runner import Federation
from fedmr_med.server.chain import BEST_MODEL
from fedmr_med.server.state import GlobalState
from fedmr_med.site.images import open_data
from fedmr_med.sites import SiteConfig, load_site
from tests.helpers.benchmarks import tiny_federation, tiny_job
from tests.helpers.errors import raises

CLASSES = ("low", "middle", "high")


def points(task: TaskConfig, *, part: int, wrong: bool = False) -> OwnData:
    """Three clusters of points, of patients with three each; ``wrong`` labels the test points by chance."""
    generator = torch.Generator().manual_seed(part)

    def drawn(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(count) // 3 % 3
        return torch.randn(count, 6, generator=generator) + 1.5 * labels[:, None], labels

    (items, labels), (test, truth) = drawn(270), drawn(90)
    truth = truth[torch.randperm(90, generator=generator)] if wrong else truth
    patients = [f"p{i // 3}" for i in range(270)]
    return OwnData(TensorDataset(items, labels), TensorDataset(test, truth), CLASSES, train_groups=patients)


class Points(torch.nn.Sequential):
    def __init__(self, num_classes: int, width: int = 8):
        super().__init__(torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, num_classes))


def job(**changes: Any) -> JobConfig:
    task = {"class_names": list(CLASSES), "transform": "none", "channels": 1}
    training = {"train.lr": 0.05, "train.batch_size": 16, "train.epochs": 1, "train.validation": 0.3}
    made: JobConfig = own_job("points", task, "fedmr", f"{__name__}.Points", rounds=3, changes=training | changes)
    return made


def sites(folder: Path, **options: Any) -> dict[str, SiteConfig]:
    found = {}
    for part in (0, 1, 2):
        path = folder / f"site-{part}" / "site.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        said = ", ".join(f"{name}: {str(value).lower()}" for name, value in (options | {"part": part}).items())
        path.write_text(f"data: {{source: dataset, factory: {__name__}.points, options: {{{said}}}}}\n")
        policy = SitePolicy(share_prototypes=True, share_metrics="per_class", min_cell_count=1, training=None)
        found[path.parent.name] = load_site(path).model_copy(update={"policy": policy})
    return found


def run(folder: Path, settings: JobConfig, **options: Any) -> GlobalState:
    return Federation(settings, sites(folder, **options), folder / "run").run()


def test_test_images_choose_nothing(tmp_path: Path) -> None:
    """With test labels by chance the same model is kept, with the same thresholds and temperature."""
    right, wrong = run(tmp_path / "a", job()), run(tmp_path / "b", job(), wrong=True)
    assert all(np.array_equal(array, wrong.model[name]) for name, array in right.model.items())
    best = right.history.best
    assert best is not None and best == wrong.history.best and best.balanced_accuracy is not None
    kept = [state.history.best_evaluation for state in (right, wrong)]
    assert kept[0] is not None and kept[1] is not None
    assert kept[0].validation == kept[1].validation
    assert kept[0].validation is not None and kept[0].validation.pooled is not None
    assert best.balanced_accuracy == kept[0].validation.pooled.balanced_accuracy
    for evaluation in kept:
        assert evaluation is not None and evaluation.pooled_figures is not None and evaluation.validation is not None
        assert evaluation.pooled_figures.thresholds == evaluation.validation.thresholds
        assert evaluation.pooled_figures.temperature == evaluation.validation.temperature is not None
    scores = [evaluation.pooled.balanced_accuracy for evaluation in kept]
    assert scores[0] > scores[1] + 0.2, "and yet the test images tell how good it is"
    saved = [load_model(tmp_path / name / "run" / BEST_MODEL, allow_code=True) for name in "ab"]
    assert saved[0].temperature == saved[1].temperature
    assert all(np.array_equal(array, saved[1].model[name]) for name, array in saved[0].model.items())


def test_nobody_trains_on_the_images_that_choose_and_patients_stay_whole(tmp_path: Path) -> None:
    site = sites(tmp_path)["site-0"]
    data, whole = open_data("site-0", job(), site), open_data("site-0", job(**{"train.validation": 0.0}), site)
    assert whole.validation is None and data.validation is not None
    assert len(data.train) + len(data.validation) == len(whole.train) == 270
    assert not {*data.train.groups} & {*data.validation.groups}
    assert abs(len(data.validation) - 81) <= 9
    assert len(data.test) == len(whole.test)


def test_what_too_few_images_choose_is_chosen_by_nobody(tmp_path: Path) -> None:
    """Eight or nine images of a class may not leave. Then the last model is kept, and not that of the test images."""
    state = run(tmp_path, job(**{"train.validation": 0.1}))
    evaluation, best = state.history.best_evaluation, state.history.best
    assert best is not None and best.balanced_accuracy is None and best.round == 3
    assert evaluation is not None and evaluation.pooled is not None and evaluation.validation is not None
    assert evaluation.pooled.balanced_accuracy is not None and evaluation.validation.pooled is None
    assert evaluation.pooled_figures is not None and evaluation.pooled_figures.temperature is None
    assert set(evaluation.pooled_figures.thresholds) == {None}
    assert "validation images" in str(state.history.why_last(CLASSES))


def test_secure_sums_choose_the_same(tmp_path: Path) -> None:
    secure = {"federation.secure": "statistics", "federation.min_sites": 3}
    plain, summed = run(tmp_path / "a", job(**{"federation.min_sites": 3})), run(tmp_path / "b", job(**secure))
    first, second = (state.history.evaluations[0] for state in (plain, summed))
    assert first.validation is not None and second.validation is not None
    assert first.validation.thresholds == second.validation.thresholds
    assert first.validation.pooled is not None and second.validation.pooled is not None
    assert first.validation.pooled.recall == second.validation.pooled.recall


def test_a_test_set_at_the_server_has_no_validation_images(tmp_path: Path) -> None:
    from tests.helpers.archives import write_mini

    write_mini("fmnist", tmp_path / "data", per_class=20, test_per_class=4)
    settings = tiny_job("fedavg", changes={"train.validation": 0.2})
    with raises("config.conflict", "train.validation"):
        tiny_federation(settings, tmp_path / "data", tmp_path / "run", central=True)


pytestmark = pytest.mark.slow
