"""Every cell of what is asked, how it is added up and what a policy allows: the server reads the permitted rows.

What it should read is computed here from the sites' images and the words of their policies alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.data.loading import Batches
from fedmr_med.models import load_arrays
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.runner import Federation
from fedmr_med.server.state import BIAS, WEIGHT, GlobalState
from fedmr_med.site.hospital import Hospital
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.statistics.head import HeadStatistics, solve
from tests.helpers.small import CLOSED, OPEN, initial_state, lenient, small_hospital, small_job, task_for

pytestmark = pytest.mark.slow

SITES, TRIED = ("bcn", "msk", "rosendahl", "vienna-dias"), "rosendahl"
CLASSES, SHRINKAGE = 8, 0.1
SHARING: dict[str, Any] = {"share_prototypes": True, "share_metrics": "per_class"}
POLICIES = {
    "open": OPEN,
    "opted out": CLOSED,
    "some classes": lenient(share_prototypes=("NV", "BCC"), share_metrics="per_class"),
    "min_class_count": lenient(**SHARING, min_class_count=20),
    "metrics none": lenient(share_prototypes=True, share_metrics="none"),
    "metrics scalar": lenient(share_prototypes=True, share_metrics="scalar"),
    "no scatter": lenient(**SHARING, share_scatter=False),
}
HARDLY_NOISE = {"clip": 5, "noise": 2e-6}
"""So little that what a private job reads is known."""


class Seen(NamedTuple):
    """What a network makes of a fold: features (n, d), logits (n, C) and labels (n,)."""

    features: torch.Tensor
    logits: np.ndarray
    labels: np.ndarray


def job_of(secure: str, *, private: bool) -> JobConfig:
    # Sites are not compared: one that is far larger than the others would count with fewer images.
    federation: dict[str, Any] = {"rounds": 1, "min_sites": 3, "secure": secure, "max_deviation": None}
    if private:
        federation["private"] = HARDLY_NOISE
    return small_job(federation=federation, head={"exchange": "last", "shrinkage": SHRINKAGE})


@torch.no_grad()
def seen(hospital: Hospital, batches: Batches) -> Seen:
    hospital.network.eval()
    parts = [(*hospital.network(images), labels) for images, labels in batches.epoch("test", shuffle=False)]
    features, logits, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    return Seen(features.double(), logits.numpy(), labels.numpy())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """The training images of each site in the eyes of its own network after the first round."""
    job, folder = job_of("none", private=False), tmp_path_factory.mktemp("trained")
    found = {}
    for name in SITES:
        hospital = small_hospital(name, job, folder)
        hospital.train(task_for(initial_state(job), job))
        found[name] = seen(hospital, hospital.batches.plain)
    return found


class Cell(NamedTuple):
    """A federation that has run: one site has the policy that is tried, the others are open."""

    policy: SitePolicy
    secure: bool
    private: bool
    state: GlobalState

    def policies(self) -> Iterator[tuple[str, SitePolicy]]:
        for name in SITES:
            yield name, self.policy if name == TRIED else OPEN

    def clipped(self, features: torch.Tensor) -> torch.Tensor:
        """Return features as a private job counts them: longer ones are scaled down."""
        clip = HARDLY_NOISE["clip"]
        return features * (clip / features.norm(dim=1, keepdim=True).clamp(min=clip)) if self.private else features

    def of_model(self, name: str, folder: Path, model: Arrays, fold: str) -> Seen:
        hospital = small_hospital(name, job_of("none", private=False), folder)
        load_arrays(hospital.network, model)
        return seen(hospital, getattr(hospital.batches, fold))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (policy, secure, private),
            id=f"{policy}-{secure}{'-private' if private else ''}",
            marks=[pytest.mark.nightly] if private and policy not in ("open", "some classes") else [],
        )
        for policy in POLICIES
        for secure in ("none", "statistics")
        for private in (False, True)
    ],
)
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cell:
    name, secure, private = request.param
    policy = POLICIES[name]
    sites = {
        site: SiteConfig(
            data=DemoSource(source="demo", center=HOSPITALS.index(site)), policy=policy if site == TRIED else OPEN
        )
        for site in SITES
    }
    job = job_of(secure, private=private)
    state = Federation(job, sites, tmp_path_factory.mktemp("run")).run()
    return Cell(policy, secure != "none", private, state)


def permitted(labels: np.ndarray, policy: SitePolicy) -> np.ndarray:
    """Return which samples (n,) are of classes that are chosen and large enough."""
    names, shared = small_job().task.class_names, policy.share_prototypes
    chosen = np.array([shared if isinstance(shared, bool) else name in shared for name in names])
    return (chosen & (np.bincount(labels, minlength=CLASSES) >= policy.min_class_count))[labels]


def test_prototypes_are_the_class_means_of_the_permitted_images(cell: Cell, trained: dict[str, Seen]) -> None:
    sums, counts = torch.zeros(CLASSES, 128, dtype=torch.float64), np.zeros(CLASSES)
    for name, policy in cell.policies():
        features, _, labels = trained[name]
        rows = permitted(labels, policy)
        sums.index_add_(0, torch.from_numpy(labels[rows]), cell.clipped(features[rows]))
        counts += np.bincount(labels[rows], minlength=CLASSES)
    read = cell.state.prototypes
    assert read.available.tolist() == (counts > 0).tolist()
    expected = sums.numpy() / np.maximum(counts, 1)[:, None]
    np.testing.assert_allclose(read.means.numpy(), expected, rtol=1e-4, atol=1e-4 if cell.private else 1e-6)


def check_scores(cell: Cell, number: int, model: Arrays, folder: Path) -> None:
    """Compare the pooled scores of an evaluation with those of a model on the permitted test images."""
    matrix = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    for name, policy in cell.policies():
        if policy.share_metrics == "per_class":
            _, logits, labels = cell.of_model(name, folder, model, "test")
            rows = permitted(labels, policy)
            np.add.at(matrix, (labels[rows], logits[rows].argmax(1)), 1)
    pooled = cell.state.history.evaluations[number].pooled
    assert pooled is not None
    present = matrix.sum(1) > 0
    recalls = np.diag(matrix)[present] / matrix.sum(1)[present]
    assert pooled.samples == matrix.sum()
    assert pooled.balanced_accuracy == pytest.approx(recalls.mean())
    assert [recall is not None for recall in pooled.recall] == present.tolist()
    figures = cell.state.history.evaluations[number].pooled_figures
    if number == -1:
        assert figures is not None, "histograms are pooled as well"


def test_scores_of_a_round_are_of_the_permitted_test_images(cell: Cell, tmp_path: Path) -> None:
    check_scores(cell, 0, initial_state(job_of("none", private=False)).model, tmp_path)


def test_scores_of_a_validation_are_of_the_permitted_test_images(cell: Cell, tmp_path: Path) -> None:
    check_scores(cell, -1, cell.state.leaving().model, tmp_path)


def test_the_head_is_that_of_the_permitted_images(cell: Cell, tmp_path: Path) -> None:
    total = HeadStatistics.zeros(CLASSES, 128)
    for name, policy in cell.policies():
        features, _, labels = cell.of_model(name, tmp_path, cell.state.leaving().model, "plain")
        rows = permitted(labels, policy)
        part = HeadStatistics.from_features(cell.clipped(features[rows]), torch.from_numpy(labels[rows]), CLASSES)
        if not policy.share_scatter:
            # Noise on a secure sum has no field for means alone, so such a site has no part in it.
            part = HeadStatistics.zeros(CLASSES, 128) if cell.secure and cell.private else part.from_sums(part.sums)
        total = total + part
    expected = solve(total, SHRINKAGE)
    present = total.sums.counts.numpy() > 0
    # A secure sum rounds; noise sets a least variance in directions that hardly vary.
    share = 2e-2 if cell.private else 2e-3 if cell.secure else 1e-5
    for name, array in ((WEIGHT, expected.weight.numpy()), (BIAS, expected.bias.numpy())):
        slack = share * np.abs(array[present]).max()
        np.testing.assert_allclose(cell.state.head[name][present], array[present], rtol=0, atol=slack)
    assert (cell.state.head[BIAS][~present] < -1e4).all()
