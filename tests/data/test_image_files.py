"""Image files reach a network in one way, at a site and where the model is used."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedmr_med import data, load_model
from fedmr_med.config import JobConfig
from fedmr_med.data.image_files import ImageReader
from fedmr_med.data.loading import Batches
from fedmr_med.jobs.catalog import isic_job, own_job
from fedmr_med.jobs.changes import change
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.runner import Federation
from fedmr_med.sites import ManifestSource, SiteConfig
from tests.helpers.errors import raises


def job_of(channels: int) -> JobConfig:
    task = {"class_names": ("dark", "light"), "channels": channels, "image_size": 24}
    return own_job("own", task, "fedavg", "small_cnn", changes={"federation.min_sites": 1})


@pytest.fixture
def hospital(tmp_path: Path) -> SiteConfig:
    """Twelve pictures of each class, in colour or grey, of several sizes."""
    folder, generator = tmp_path / "hospital", np.random.default_rng(0)
    folder.mkdir()
    lines = ["image,label,fold"]
    for number in range(24):
        shape = (40 + number, 50, 3) if number % 3 else (40 + number, 50)
        pixels = generator.integers(0, 128, shape) + 127 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{('dark', 'light')[number % 2]},{'test' if number > 17 else 'train'}")
    (folder / "manifest.csv").write_text("\n".join(lines))
    policy = SitePolicy(training=None, share_metrics="per_class", min_class_count=1, min_cell_count=1)
    return SiteConfig(data=ManifestSource(source="manifest", root=folder), policy=policy, cache=tmp_path / "cache")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_site_and_a_model_in_use_see_the_same(hospital: SiteConfig, channels: int) -> None:
    task, source = job_of(channels).task, hospital.data
    assert isinstance(source, ManifestSource)
    fold = data.load(hospital, task, seed=0).test
    (batch, _), *_ = Batches.of(fold, task, batch_size=len(fold)).epoch(shuffle=False)
    read = ImageReader(task)
    assert batch.shape == (6, channels, 24, 24)
    assert torch.equal(batch, torch.stack([read(source.root / f"{number}.png") for number in range(18, 24)]))


def test_a_hospital_trains_on_grey_pictures_and_uses_the_model(hospital: SiteConfig, tmp_path: Path) -> None:
    assert isinstance(hospital.data, ManifestSource)
    state = Federation(job_of(1), {"hospital": hospital}, tmp_path / "run").run()
    assert state.round == 2
    answers = load_model(tmp_path / "run" / "checkpoint.pt").predict(hospital.data.root)
    assert len(answers) == 24 and not any(answer.error for answer in answers)


def test_image_files_have_one_channel_or_three(hospital: SiteConfig) -> None:
    with raises("data.channels", "task.channels"):
        data.load(hospital, job_of(4).task, seed=0)


def test_a_transform_for_colour_is_not_for_grey_pictures(hospital: SiteConfig) -> None:
    with raises("config.conflict", "task.channels"):
        data.load(hospital, job_of(1).task.model_copy(update={"transform": "isic"}), seed=0)
    with raises("config.conflict", "task.channels"):
        change(isic_job("fedmr"), {"task.channels": 1})
