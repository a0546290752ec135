"""Class sums with noise: bounded by the clip for every image and patient, and none once the budget is used up."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.data import transforms
from fedmr_med.data.base import Fold
from fedmr_med.data.loading import Batches
from fedmr_med.models.job_network import ClassifierOnly
from fedmr_med.network import Network
from fedmr_med.privacy.accountant import PrivacyBudget
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.runner import Federation
from fedmr_med.server.state import GlobalState
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.private import Clipped, PrivateSums, clipped, image_shares
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.errors import raises
from tests.helpers.small import OPEN, initial_state, lenient, small_hospital, small_job, task_for

PRIVATE = {"clip": 3.0, "noise": 0.6}
RICH = lenient(share_prototypes=True, share_metrics="per_class", privacy=PrivacyBudget(epsilon=100))
NAMES = ("bcn", "vidir-molemax", "rosendahl", "msk")


def features_alone() -> Network:
    """Return a network whose features are its input, as those of a frozen backbone are."""
    whole = Network()
    whole.feature_size, whole.classifier = 3, torch.nn.Linear(3, 2)
    return ClassifierOnly(whole)


def statistics(items: np.ndarray, labels: Sequence[int], groups: tuple[str, ...] | None = None) -> Clipped:
    fold = Fold(items.astype(np.float32), np.array(labels), groups)
    batches = Batches(fold, transforms.unchanged, batch_size=4)
    return clipped(features_alone(), batches, fold, 1.0, np.array([True, True]))


def distance(a: Clipped, b: Clipped) -> tuple[float, float, float]:
    return (
        float((a.sums.sums - b.sums.sums).norm()),
        float(np.abs(a.weights - b.weights).sum()),
        float(np.linalg.norm(a.moments - b.moments)),
    )


def test_one_image_moves_the_statistics_by_no_more_than_the_sensitivity() -> None:
    items = np.random.default_rng(0).integers(0, 255, (9, 3))
    labels = [0, 1, 0, 1, 1, 0, 0, 1, 0]
    with_it, without = statistics(items, labels), statistics(items[1:], labels[1:])
    assert all(moved <= 1 + 1e-9 for moved in distance(with_it, without))


def test_a_patient_with_many_images_counts_as_one_image() -> None:
    items = np.random.default_rng(1).integers(0, 255, (9, 3))
    labels = [0, 0, 1, 0, 1, 1, 0, 0, 1]
    groups = ("p", "p", "p", "p", "q", "", "", "r", "r")
    assert image_shares(Fold(items, items[:, 0], groups)).tolist() == [  # type: ignore[arg-type]
        0.25,
        0.25,
        0.25,
        0.25,
        1,
        1,
        1,
        0.5,
        0.5,
    ]
    with_them = statistics(items, labels, groups)
    without = statistics(items[4:], labels[4:], groups[4:])
    assert all(moved <= 1 + 1e-9 for moved in distance(with_them, without))
    assert with_them.weights.sum() == pytest.approx(5)


def federation(
    folder: Path, policies: Sequence[SitePolicy], secure: str = "statistics", **private: float
) -> Federation:
    settings = {"rounds": 3, "min_sites": 3, "secure": secure, "private": PRIVATE | private}
    job = small_job(federation=settings, head={"exchange": "none"})
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=center), policy=policy)
        for center, (name, policy) in enumerate(zip(NAMES, policies, strict=True))
    }
    return Federation(job, sites, folder)


@pytest.mark.slow
def test_a_secure_and_private_job_has_prototypes_and_says_what_they_cost(tmp_path: Path) -> None:
    state = federation(tmp_path, [RICH, *[OPEN] * 3]).run()
    assert state.prototypes.available.any()
    assert {record.sites["msk"].epsilon for record in state.history.rounds} == {None}, "no budget, no guarantee"
    costs = [record.sites["bcn"].epsilon for record in state.history.rounds]
    assert costs == sorted(costs)
    assert costs[0]


@pytest.mark.slow
def test_without_secure_sums_each_site_adds_all_of_the_noise(tmp_path: Path) -> None:
    state = federation(tmp_path, [OPEN] * 4, secure="none").run()
    assert state.prototypes.available.any()
    assert [len(record.sites) for record in state.history.rounds] == [4] * 3


@pytest.mark.slow
def test_sites_whose_budget_is_used_up_go_on_without_prototypes(tmp_path: Path) -> None:
    poor = lenient(share_prototypes=True, share_metrics="per_class", privacy=PrivacyBudget(epsilon=12))
    state = federation(tmp_path, [poor] * 4).run()
    ages = state.prototypes.age[state.prototypes.available]
    assert ages.tolist() == [2] * len(ages), "one of three releases fits into the budget"
    assert len(ages)
    assert [len(record.sites) for record in state.history.rounds] == [4] * 3


@pytest.mark.slow
def test_prototypes_age_between_releases(tmp_path: Path) -> None:
    state: GlobalState = federation(tmp_path, [OPEN] * 4, every=2).run()
    assert set(state.prototypes.age[state.prototypes.available].tolist()) == {0}
    assert len((tmp_path / "client_state" / "bcn" / "privacy_ledger.jsonl").read_text().splitlines()) == 2


def test_a_site_with_a_budget_shares_nothing_with_a_job_without_noise(tmp_path: Path) -> None:
    job = small_job()
    policy = lenient(share_prototypes=True, min_class_count=1, privacy=PrivacyBudget(epsilon=4))
    hospital = small_hospital("bcn", job, tmp_path, policy)
    task = task_for(initial_state(job), job)
    assert hospital.train(task).prototypes is None
    assert hospital.head_statistics(task).statistics == {}


@pytest.mark.parametrize("secure", ["none", "statistics"])
def test_noise_does_not_take_the_place_of_the_small_cell_rule_where_a_site_has_no_budget(
    tmp_path: Path, secure: str
) -> None:
    """A job can call anything noise: with a millionth of it, sums and moments would hold the small classes."""
    settings = {"min_sites": 3, "secure": secure, "private": PRIVATE | {"noise": 1e-6}}
    policy = lenient(share_prototypes=True, min_class_count=30)
    hospital = small_hospital("bcn", small_job(federation=settings), tmp_path, policy)
    small = (hospital.counts > 0) & (hospital.counts < 30)
    assert small.any()
    assert hospital.releases.sums.private is not None
    images = (hospital.network, hospital.batches.plain, hospital.data.train)
    sums = hospital.releases.sums.private.sums(*images, chain="chain", release="train-0")
    assert sums is not None
    assert not sums.counts.numpy()[small].any()
    made = hospital.releases.sums.private.head(*images, chain="chain", release="head-0")["kept"]["moments"]
    expected = clipped(*images, PRIVATE["clip"], hospital.counts >= 30).moments
    np.testing.assert_allclose(made, expected, atol=1e-3 * np.abs(expected).max())


def test_a_restored_ledger_stops_the_site(tmp_path: Path) -> None:
    job = small_job(federation={"rounds": 2, "min_sites": 1, "private": PRIVATE})
    task = task_for(initial_state(job), job)
    site = SiteConfig(data=DemoSource(source="demo", center=0), policy=OPEN)
    Hospital("bcn", job, site, tmp_path / "state", witness=tmp_path / "witness.json").train(task)
    (tmp_path / "state" / "privacy_ledger.jsonl").unlink()
    with raises("record.not-latest"):
        Hospital("bcn", job, site, tmp_path / "state", witness=tmp_path / "witness.json").train(task)


def test_a_site_without_an_image_of_its_classes_makes_noise_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing at all would stand for no image, where one image leaves as noise that is large enough now and then."""
    monkeypatch.setattr(PrivateSums, "_large_enough", lambda self, noisy, gaussian: noisy)
    job = small_job(federation={"min_sites": 1, "private": PRIVATE | {"noise": 1.0}}, head={"projection": 4})
    policy = lenient(share_prototypes=("AK",), privacy=PrivacyBudget(epsilon=1000))
    hospital = small_hospital("msk", job, tmp_path, policy)
    private, images = hospital.releases.sums.private, hospital.images
    assert private is not None
    assert hospital.counts[job.task.class_names.index("AK")] == 0
    sums, head = (made(*images, chain="c", release="train-0") for made in (private.sums, private.head))
    gaussian = private._settings.gaussian
    assert sums is not None
    assert float(sums.sums.std()) == pytest.approx(gaussian.sums_scale, rel=0.1)
    assert head["kept"]["moments"].any()
