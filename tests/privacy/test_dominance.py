"""The dominance rule: no image, and no patient, stands out in a class's sums."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.data.base import Fold
from fedmr_med.privacy.mechanisms import Dominance
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.site.ledger import Ledgers
from fedmr_med.site.releases import Releases
from fedmr_med.site.statistics import Bound
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE
from tests.helpers.small import initial_state, small_hospital, small_job, task_for


def bounded(features: torch.Tensor, labels: list[int], units: list[int], share: float = 0.2) -> torch.Tensor:
    return Bound(Dominance(share), np.array(units))(features, torch.tensor(labels), np.ones(max(labels) + 1, np.bool_))


@pytest.mark.parametrize("carriers", [1, 4])
def test_a_feature_that_too_few_carry_tells_nothing(carriers: int) -> None:
    features = torch.full((50, 3), 7.0)
    features[:carriers] += 1 + torch.rand(carriers, 3) * 100
    assert torch.equal(bounded(features, [0] * 50, list(range(50))), torch.full((50, 3), 7.0).double())
    five = torch.full((50, 3), 7.0)
    five[:5] += 1
    assert torch.equal(bounded(five, [0] * 50, list(range(50))), five.double())


@pytest.mark.parametrize("zeros", [8, 10, 12])
def test_no_value_that_some_share_makes_another_stand_out(zeros: int) -> None:
    """Ten large values beside one that is small would leave that one's alone, about the median."""
    features = torch.zeros(21, 1)
    features[zeros] = 3.0
    features[zeros + 1 :] = 1000 * 2.0 ** torch.arange(20 - zeros)[:, None]
    told = bounded(features, [0] * 21, list(range(21)))
    assert not told.any()


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_a_feature_that_one_dominates_is_replaced_by_the_mean_of_the_other_classes(share: float) -> None:
    random = np.random.default_rng(0)
    features = torch.from_numpy(random.standard_t(1.2, (80, 200)))  # far outliers
    labels = [0] * 40 + [1] * 40
    told = bounded(features, labels, list(range(80)), share)
    passing = torch.stack([Dominance(share).passes(part, torch.arange(40)) for part in features.split(40)])
    assert (~passing).any(1).all()
    assert passing.any(1).all()
    for label in (0, 1):
        mine, others = told.split(40)[label], features.split(40)[1 - label]
        assert torch.equal(mine[:, passing[label]], features.split(40)[label][:, passing[label]])
        known = ~passing[label] & passing[1 - label]
        torch.testing.assert_close(mine[:, known], others.mean(0)[known].expand(40, -1))
    assert not told[:, (~passing).all(0)].any()


def test_images_of_one_patient_count_as_one() -> None:
    features = torch.zeros(30, 1)
    features[:10] = 5.0
    assert torch.equal(bounded(features, [0] * 30, list(range(30))), features.double())
    assert not bounded(features, [0] * 30, [0] * 10 + list(range(1, 21))).any()


def test_a_class_of_too_few_patients_does_not_leave(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], 20)
    groups = ["p1"] * 20 + [f"q{n}" for n in range(5)] * 4 + [""] * 20
    fold = Fold(np.zeros((60, 4, 4, 3), np.uint8), labels, groups)
    job = small_job()
    for policy, expected in (
        (SitePolicy(share_prototypes=True, max_share=0.5), [1, 2]),
        (SitePolicy(share_prototypes=True), [0, 1, 2]),
    ):
        releases = Releases("a", job, policy, fold, tmp_path, Ledgers.of(tmp_path))
        assert np.flatnonzero(releases.sums.prototype_classes()).tolist() == expected
        assert np.flatnonzero(releases.sums.statistics_classes()).tolist() == expected
        for kind, counted in ((TRAIN, expected), (HEAD, expected), (VALIDATE, [])):
            shown = releases.sums.package_classes(kind, releases.sums.counts)
            assert np.flatnonzero(shown).tolist() == counted, "statistics of packages have no noise either"


def test_prototypes_and_head_statistics_hold_to_it(tmp_path: Path) -> None:
    job = small_job(head={"exchange": "last", "held_out": 0.4})
    policy = SitePolicy(training=None, max_share=0.5, share_prototypes=True)
    task = replace(task_for(initial_state(job), job), round=0)
    hospital = small_hospital("bcn", job, tmp_path, policy)
    hospital.train(task)
    sums, _ = hospital.releases.sums.prototypes(task, hospital.images, keep_withheld=False)
    with torch.no_grad():
        made = [
            (hospital.network(images)[0], labels) for images, labels in hospital.batches.plain.epoch("", shuffle=False)
        ]
    features, labels = (torch.cat(part) for part in zip(*made, strict=True))
    classes = hospital.releases.sums.prototype_classes()
    told = Bound.of(Dominance(0.5), hospital.data.train)(features, labels, classes)
    assert sums is not None
    for label in np.flatnonzero(classes):
        torch.testing.assert_close(sums.sums[label], told[labels == label].sum(0))
    assert not torch.allclose(told.sum(0), features.double().sum(0))
    values = hospital.head_statistics(replace(task, round=1)).statistics
    assert values.keys() == {"kept", "held_out"}
