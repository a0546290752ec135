"""The demo follows Fed-ISIC2019's pattern, is always the same, and is neither trivial nor hopeless."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedmr_med import data
from fedmr_med.data.base import Fold, SiteData, class_counts
from fedmr_med.data.demo import RARE, _fold, class_counts_of, effective_job
from fedmr_med.data.flamby_isic import CLASS_NAMES, TEST_COUNTS, TRAIN_COUNTS
from fedmr_med.data.loading import Batches
from fedmr_med.data.transforms import build
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.sites import DemoSource, FlambyIsicSource, SiteConfig
from tests.helpers.errors import raises
from tests.helpers.pictures import isic_task


def demo(center: int, *, image_size: int = 48, seed: int = 0) -> SiteData:
    site = SiteConfig(data=DemoSource(source="demo", center=center))
    return data.load(site, isic_task(image_size), seed=seed)


@pytest.fixture(scope="module")
def sites() -> list[SiteData]:
    return [demo(center) for center in range(6)]


def pooled(sites: list[SiteData], fold: str) -> Fold:
    folds = [getattr(site, fold) for site in sites]
    return Fold(np.concatenate([f.items for f in folds]), np.concatenate([f.labels for f in folds]))


@pytest.mark.parametrize("center", range(6))
def test_present_rare_and_missing_classes_are_flambys(sites: list[SiteData], center: int) -> None:
    train, test = (class_counts(fold, 8) for fold in (sites[center].train, sites[center].test))
    assert (train.tolist(), test.tolist()) == class_counts_of(DemoSource(source="demo", center=center))
    theirs = np.array(TRAIN_COUNTS[center])
    np.testing.assert_array_equal(train == 0, theirs == 0)
    np.testing.assert_array_equal(train < RARE, theirs < RARE)
    assert (train[theirs >= RARE] >= 12).all()
    np.testing.assert_array_equal(test == 0, np.array(TEST_COUNTS[center]) == 0)


def test_the_demo_is_small(sites: list[SiteData]) -> None:
    assert 700 <= sum(len(site.train) for site in sites) <= 900
    assert 300 <= sum(len(site.test) for site in sites) <= 400
    assert all(site.is_demo and site.class_names == CLASS_NAMES and not site.skipped for site in sites)


def test_pictures_are_the_same_in_every_process_and_for_every_seed(sites: list[SiteData]) -> None:
    _fold.cache_clear()
    again = demo(5, seed=7)
    assert again.train is not sites[5].train
    np.testing.assert_array_equal(again.train.items, sites[5].train.items)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(again.test.items, sites[5].test.items)  # type: ignore[attr-defined]


def test_no_picture_comes_twice(sites: list[SiteData]) -> None:
    everything = [picture.tobytes() for fold in ("train", "test") for picture in pooled(sites, fold).items]
    assert len(set(everything)) == len(everything)


def test_a_larger_image_size_shows_the_same_scene(sites: list[SiteData]) -> None:
    large = demo(5, image_size=200)
    assert large.train[0].shape == (224, 224, 3)
    for index in range(5):
        small = Image.fromarray(sites[5].train[index])
        shrunk = np.asarray(Image.fromarray(large.train[index]).resize(small.size, Image.Resampling.BOX))
        assert np.abs(shrunk.astype(int) - np.asarray(small)).mean() < 8


def test_centres_have_their_own_light(sites: list[SiteData]) -> None:
    casts = np.stack([site.train.items.mean(axis=(0, 1, 2)) for site in sites])  # type: ignore[attr-defined]
    casts = casts / casts.sum(axis=1, keepdims=True)
    blue = casts[:, 2]
    assert blue[5] > blue[2] + 0.01


def test_other_classes_are_refused() -> None:
    task = isic_task().model_copy(update={"class_names": ("a", "b")})
    with raises("data.class-names", "task.class_names"):
        data.load(SiteConfig(data=DemoSource(source="demo", center=0)), task, seed=0)


def test_thumbnails_are_not_enough_for_a_linear_classifier(sites: list[SiteData]) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def thumbnails(fold: Fold) -> np.ndarray:
        size = (8, 8)
        return np.stack([np.asarray(Image.fromarray(i).resize(size, Image.Resampling.BOX)).ravel() for i in fold.items])

    train, test = pooled(sites, "train"), pooled(sites, "test")
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, class_weight="balanced"))
    model.fit(thumbnails(train), train.labels)
    assert 0.3 < balanced_accuracy_score(test.labels, model.predict(thumbnails(test))) < 0.75


@pytest.mark.slow
def test_a_small_network_learns_the_classes_from_scratch(sites: list[SiteData]) -> None:
    from sklearn.metrics import balanced_accuracy_score

    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for channels, width in ((3, 16), (16, 32), (32, 64)):
        layers += [torch.nn.Conv2d(channels, width, 3, padding=1), torch.nn.BatchNorm2d(width)]
        layers += [torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    network = torch.nn.Sequential(*layers, torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    train = Batches(pooled(sites, "train"), build("isic", train=True, image_size=48), batch_size=32)
    for epoch in range(3):
        for images, labels in train.epoch(0, "pooled", 0, epoch, shuffle=True, drop_single=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
    network.eval()
    test = Batches(pooled(sites, "test"), build("isic", train=False, image_size=48), batch_size=64)
    with torch.no_grad():
        outputs = [(network(images).argmax(1), labels) for images, labels in test.epoch("test", shuffle=False)]
    predicted, labels = (torch.cat(parts).numpy() for parts in zip(*outputs, strict=True))
    assert balanced_accuracy_score(labels, predicted) > 0.5


def test_a_process_draws_a_site_once_and_nobody_can_paint_over_it() -> None:
    first, second = demo(5, seed=0), demo(5, seed=1)
    assert first.train is second.train
    with pytest.raises(ValueError, match="read-only"):
        first.train[0][0, 0] = 0


JOB = isic_job("fedmr")


def site(center: int, *, images: bool) -> SiteConfig:
    if images:
        return SiteConfig(data=FlambyIsicSource(source="flamby_isic", center=center, root=Path("prepared")))
    return SiteConfig(data=DemoSource(source="demo", center=center))


def test_where_all_sites_have_images_the_job_stays_as_it_is() -> None:
    assert effective_job(JOB, {"bcn": site(0, images=True), "msk": site(4, images=True)}) is JOB


def test_where_no_site_has_images_the_job_has_its_demo_settings() -> None:
    job = effective_job(JOB, {"bcn": site(0, images=False), "msk": site(4, images=False)})
    assert job == JOB.for_demo()
    assert job.task.image_size == 40


def test_a_mixture_is_refused_with_the_names_of_those_without_images() -> None:
    sites = {
        "msk": site(4, images=False),
        "vienna-dias": site(5, images=True),
        "bcn": site(0, images=False),
    }
    with pytest.raises(ConfigError, match=r"No images of bcn, msk, while other sites have theirs.*FEDMR_MED_ISIC"):
        effective_job(JOB, sites)
