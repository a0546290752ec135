"""Features of a frozen backbone: made once per site, kept in private, and never mistaken for others."""

import json
import os
import stat
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from fedmr_med.cli import app
from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold
from fedmr_med.data.cache import clean, open_images
from fedmr_med.data.feature_cache import fingerprint
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import RoundRecord, SiteRound
from fedmr_med.models.job_network import backbone_of, build_network, feature_network
from fedmr_med.models.model_file import load_model
from fedmr_med.privacy.refusals import FEATURES, NoFeaturesError, code_of
from fedmr_med.runner import Federation
from fedmr_med.server.chain import BEST_MODEL
from fedmr_med.server.checkpoint import load_checkpoint
from fedmr_med.server.state import initial_state, train_task
from fedmr_med.site import features
from fedmr_med.site.features import feature_fold
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.wire.messages import Backbone, TrainTask
from tests.helpers.errors import raises
from tests.helpers.small import OPEN, small_hospital, small_job, task_for

torch.set_num_threads(1)
METHODS = ("fedavg", "fedprox", "fedproc", "fednova", "moon", "feddyn", "feddc", "fedmr", "scaffold")


def frozen_job(method: str = "fedavg", /, **changes: object) -> JobConfig:
    return small_job(method, model={"freeze_backbone": True}, **changes)


def images(seed: int, count: int = 6) -> Fold:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 24, 24, 3), dtype=np.uint8)
    return Fold(pixels, np.arange(count) % 8)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDMR_MED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def extractions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images of every pass through the backbone."""
    seen: list[int] = []
    real = features.extract

    def counted(network: object, fold: object, job: object) -> object:
        seen.append(len(fold))
        return real(network, fold, job)

    monkeypatch.setattr(features, "extract", counted)
    return seen


def backbone(job: JobConfig) -> Backbone:
    found = backbone_of(job)
    assert found is not None
    return found


def test_features_are_those_of_the_network_and_made_once(extractions: list[int], cache: Path) -> None:
    job, fold = frozen_job(), images(0)
    frozen = backbone(job)
    made = feature_fold(job, fold, frozen)
    network = feature_network(job).eval()
    network.load_state_dict({**network.state_dict(), **{k: torch.from_numpy(v) for k, v in frozen.arrays.items()}})
    pixels = torch.from_numpy(np.stack([(image.transpose(2, 0, 1) / 255).astype(np.float32) for image in fold.items]))
    mean, std = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    with torch.no_grad():
        expected = network((pixels - mean[:, None, None]) / std[:, None, None])[0]
    np.testing.assert_allclose(made.items, expected.numpy(), rtol=1e-4, atol=1e-5)
    again = feature_fold(job, fold, frozen.named())
    assert np.array_equal(again.items, made.items)
    assert extractions == [6]
    entries = list(cache.glob("*.features"))
    assert len(entries) == 1
    for path in (cache, *entries):
        assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO), f"{path} is open to others"


def test_other_weights_image_sizes_views_and_images_never_read_an_old_entry(extractions: list[int]) -> None:
    job = frozen_job()
    fold, frozen = images(0), backbone(job)
    first = feature_fold(job, fold, frozen).items
    one_weight = {name: array.copy() for name, array in frozen.arrays.items()}
    next(iter(one_weight.values())).flat[0] += 1e-3
    changed = Fold(fold.items.copy(), fold.labels)
    changed.items[0, 0, 0, 0] ^= 1
    others = [
        feature_fold(job, fold, Backbone.of(one_weight)),
        feature_fold(job.override({"task": {"image_size": 20}}), fold, frozen),
        feature_fold(job.override({"model": {"views": "flips"}}), fold, _wrapped(frozen)),
        feature_fold(job, changed, frozen),
        feature_fold(job, fold.subset(np.arange(6)[::-1].copy()), frozen),
    ]
    assert extractions == [6] * 6
    assert not any(np.array_equal(other.items, first) for other in others)
    # The place of an image in its batch may change the last bits of a convolution.
    np.testing.assert_allclose(others[-1].items[::-1], first, rtol=1e-4, atol=1e-6)


def _wrapped(frozen: Backbone) -> Backbone:
    return Backbone.of({f"body.{name}": array for name, array in frozen.arrays.items()})


def test_the_fingerprint_is_of_the_items_however_they_are_dealt() -> None:
    fold = images(0)
    rows = np.array([4, 1, 2])
    picked = Fold(fold.items[rows], fold.labels[rows])
    assert fingerprint(fold.subset(rows)) == fingerprint(picked)
    assert fingerprint(fold.subset(np.array([4, 0, 1, 2])).subset(np.array([0, 2, 3]))) == fingerprint(picked)
    assert fingerprint(fold.subset(rows[::-1].copy())) != fingerprint(picked)


def test_the_fingerprint_of_decoded_images_is_of_their_pixels_not_of_the_list_they_came_in(tmp_path: Path) -> None:
    write_images(tmp_path / "images", 3)

    def fold(*names: str) -> Fold:
        opened = open_images(tmp_path / "images", names, edge=24)
        return Fold(opened, np.zeros(len(names), dtype=np.int64))

    both = fold("0.png", "1.png")
    assert fingerprint(fold("2.png", "0.png", "1.png").subset(np.array([1, 2]))) == fingerprint(both)
    assert fingerprint(fold("1.png", "0.png")) != fingerprint(both)
    Image.new("RGB", (30, 30), (9, 9, 9)).save(tmp_path / "images" / "1.png")
    assert fingerprint(fold("0.png", "1.png")) != fingerprint(both)


def test_a_damaged_or_foreign_entry_is_made_again(extractions: list[int], cache: Path) -> None:
    job, fold = frozen_job(), images(0)
    frozen = backbone(job)
    first = feature_fold(job, fold, frozen).items.copy()
    (entry,) = cache.glob("*.features")
    for content in (entry.read_bytes()[:-7], b"", b"something else"):
        entry.write_bytes(content)
        assert np.array_equal(feature_fold(job, fold, frozen).items, first)
    with entry.open("wb") as stream:
        np.save(stream, np.zeros((2, 3), dtype=np.float32))
    assert np.array_equal(feature_fold(job, fold, frozen).items, first)
    assert extractions == [6] * 5


def test_old_entries_go_and_others_stay(cache: Path) -> None:
    job = frozen_job()
    frozen = backbone(job)
    feature_fold(job, images(0), frozen)
    (old,) = cache.glob("*.features")
    os.utime(old, (time.time() - 40 * 86400,) * 2)
    feature_fold(job, images(1), frozen)
    assert not old.exists(), "making another entry removes what nobody used for a month"
    assert clean("features", older_than_days=1) == (0, 0)
    count, size = clean("features")
    assert count == 1 and size > 0
    assert not list(cache.glob("*.features"))


def test_a_command_cleans_the_cache(tmp_path: Path, cache: Path) -> None:
    write_images(tmp_path / "images", 2)
    opened = open_images(tmp_path / "images", ["0.png", "1.png"], edge=24)
    feature_fold(frozen_job(), images(0), backbone(frozen_job()))

    def cleaned(*options: str) -> dict[str, int]:
        done = CliRunner().invoke(app, ["data", "clean-cache", "--json", *options], catch_exceptions=False)
        assert done.exit_code == 0
        return {kind: found["entries"] for kind, found in json.loads(done.stdout).items()}

    assert cleaned("--older-than", "1") == {"images": 0, "features": 0}
    assert cleaned() == {"images": 0, "features": 1}, "the images are open"
    assert not list(cache.glob("*.features"))
    del opened
    assert cleaned() == {"images": 1, "features": 0}


def write_images(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        Image.new("RGB", (30, 30), (number, 0, 0)).save(folder / f"{number}.png")


def test_a_site_refuses_a_backbone_that_is_not_what_its_digest_says(tmp_path: Path) -> None:
    job = frozen_job()
    frozen = backbone(job)
    task = task_for(initial_state(job), job)
    wrong = {
        ("wire.digest", "backbone"): replace(frozen, digest="0" * 32),
        ("wire.form", "backbone"): Backbone.of(dict(list(frozen.arrays.items())[1:])),
        ("wire.not-finite", "frozen part of the network"): Backbone.of(
            {name: array * np.nan for name, array in frozen.arrays.items()}
        ),
        ("wire.form", "digest"): None,
    }
    for number, (fault, sent) in enumerate(wrong.items()):
        site = small_hospital("msk", job, tmp_path / str(number))
        with raises(*fault):
            site.train(replace(task, backbone=sent))


def test_a_chain_keeps_its_frozen_network(tmp_path: Path) -> None:
    """A later round neither brings another one nor names one of another job, whose features are still in the cache."""
    job = frozen_job()
    other = backbone(frozen_job().override({"seed": 7}))
    small_hospital("msk", job, tmp_path / "earlier").train(replace(task_for(initial_state(job), job), backbone=other))
    site, task = small_hospital("msk", job, tmp_path / "now"), task_for(initial_state(job), job)
    with pytest.raises(NoFeaturesError):
        site.train(replace(task, round=1, backbone=other.named()))
    site.train(task)
    for changed in (other, other.named()):
        with raises("weights.other", "backbone"):
            site.train(replace(task, round=1, backbone=changed))
    site.train(replace(task, round=1, backbone=backbone(job).named()))


def test_a_site_without_features_says_so_and_receives_the_network_again(tmp_path: Path) -> None:
    job = frozen_job()
    state = initial_state(job)
    site = SiteRound(samples=9, shared_classes=(), bytes_up=0, bytes_down=0)
    rounds = [
        RoundRecord(round=1, sites={"bcn": site, "msk": site}, refused={}, seconds=0),
        RoundRecord(round=2, sites={"bcn": site}, refused={"msk": "no features"}, seconds=0),
        RoundRecord(round=3, sites={"msk": site}, refused={}, seconds=0),
    ]

    def after(number: int, *asked: str) -> TrainTask:
        history = History(rounds=tuple(rounds[:number]))
        return train_task(replace(state, round=number, history=history), job, "c", asked)

    with pytest.raises(NoFeaturesError) as refusal:
        small_hospital("msk", job, tmp_path).train(after(1, "msk"))
    assert code_of(refusal.value) == FEATURES
    sent = {
        "first round": after(0, "bcn", "msk"),
        "all answered": after(1, "bcn", "msk"),
        "one lost them": after(2, "bcn", "msk"),
        "it has them again": after(3, "bcn", "msk"),
        "one is new": after(3, "bcn", "vienna-dias"),
        "the server was restarted": train_task(state, job, "c"),
    }
    named = {name for name, task in sent.items() if not task.backbone.arrays}
    assert named == {"all answered", "it has them again"}
    assert len({task.backbone.digest for task in sent.values()}) == 1


def federation(job: JobConfig, folder: Path) -> Federation:
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=center), policy=OPEN)
        for name, center in (("rosendahl", 3), ("msk", 4))
    }
    return Federation(job, sites, folder)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_the_classifier_over_features_made_once(
    method: str, tmp_path: Path, extractions: list[int]
) -> None:
    job = frozen_job(method)
    state = federation(job, tmp_path).run()
    assert state.round == 2
    assert state.model.keys() == {"classifier.weight", "classifier.bias"}
    before = initial_state(job)
    assert not np.array_equal(state.model["classifier.weight"], before.model["classifier.weight"])
    assert len(extractions) == 4, "two sites, two folds"
    saved = load_model(tmp_path / BEST_MODEL)
    whole = saved.network()
    assert all(np.array_equal(saved.model[name], array) for name, array in before.backbone.arrays.items())
    assert whole(torch.zeros(1, 3, 24, 24))[1].shape == (1, 8)


def test_the_classifier_alone_travels_after_the_first_round(tmp_path: Path) -> None:
    job = frozen_job()
    rounds = federation(job, tmp_path).run().history.rounds
    down = [sum(site.bytes_down for site in record.sites.values()) for record in rounds]
    up = [sum(site.bytes_up for site in record.sites.values()) for record in rounds]
    assert down[0] - down[1] == 2 * backbone(job).size
    assert up[0] == up[1] < down[0]


def test_a_run_resumes_though_every_site_lost_its_features(tmp_path: Path, extractions: list[int]) -> None:
    job = frozen_job()
    federation(job.override({"federation": {"rounds": 1}}), tmp_path).run()
    clean("features")
    assert federation(job, tmp_path).run().round == 2
    assert len(extractions) == 8


def test_a_stopped_run_resumes_to_the_same_bits_and_only_with_the_same_backbone(tmp_path: Path) -> None:
    job = frozen_job("feddyn")
    whole = federation(job, tmp_path / "whole").run()
    federation(job.override({"federation": {"rounds": 1}}), tmp_path / "parts").run()
    resumed = federation(job, tmp_path / "parts").run()
    assert all(np.array_equal(resumed.model[name], whole.model[name]) for name in whole.model)
    other = replace(whole, backbone=Backbone.of({"x": np.zeros(1)}))
    with raises("checkpoint.other-backbone", "model.options.pretrained"):
        load_checkpoint(tmp_path / "whole" / "checkpoint.pt", job, other)


def test_freezing_changes_no_initial_weight_of_the_classifier() -> None:
    job = frozen_job()
    plain = build_network(job.override({"model": {"freeze_backbone": False}})).state_dict()
    frozen = build_network(job).state_dict()
    assert all(torch.equal(plain[name], tensor) for name, tensor in frozen.items())


def test_a_trained_classifier_is_a_warm_start_for_training_all_of_the_network(tmp_path: Path) -> None:
    job = frozen_job()
    trained = federation(job, tmp_path).run()
    best = load_model(tmp_path / BEST_MODEL)
    fine_tuning = initial_state(job.override({"model": {"freeze_backbone": False}}), tmp_path / BEST_MODEL)
    assert all(np.array_equal(fine_tuning.model[name], array) for name, array in best.model.items())
    again = initial_state(job, tmp_path / BEST_MODEL)
    assert again.backbone.digest == trained.backbone.digest
    assert np.array_equal(again.model["classifier.weight"], best.model["classifier.weight"])


@pytest.mark.parametrize(("method", "options"), [("moon", {"projection": 16}), ("fedavg", {"classifier": "etf"})])
def test_methods_that_change_the_network_are_refused(method: str, options: dict[str, object]) -> None:
    with raises("config.conflict", "model.freeze_backbone"):
        initial_state(frozen_job(method, method={"options": options}))
