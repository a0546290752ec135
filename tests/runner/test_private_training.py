"""Private training in a whole federation: a site whose budget is used up stops training, and the others go on."""

from pathlib import Path

import pytest

from fedmr_med.privacy.accountant import Noisy, PrivacyBudget, epsilon
from fedmr_med.runner import Federation
from tests.helpers.small import lenient, small_hospital, small_job
from tests.helpers.transports import demo_sites


@pytest.mark.slow
def test_a_site_whose_training_budget_is_used_up_stops_and_the_others_go_on(tmp_path: Path) -> None:
    job = small_job(
        "fedmr",
        method={"options": {"variant": "anchored"}},
        train={"private": {"clip": 1.0, "noise": 1.0}},
        loss={"class_weights": "none"},
        head={"exchange": "none"},
        federation={"rounds": 2, "min_sites": 2, "max_deviation": None},
    )
    policy = lenient(share_prototypes=True, share_metrics="per_class")
    private = small_hospital("msk", job, tmp_path / "probe", policy).private_training
    assert private is not None
    one_round = epsilon([Noisy(1.0, private.rate, 3)])
    budget = PrivacyBudget(epsilon=1.01 * one_round)
    poor = policy.model_copy(update={"training_privacy": budget})
    sites = demo_sites("bcn", "msk", "vienna-dias", policy=policy, msk=poor)
    first, second = Federation(job, sites, tmp_path / "run").run().history.rounds
    assert set(first.sites) == set(sites)
    assert first.sites["msk"].training_epsilon == pytest.approx(one_round)
    assert set(second.sites) == {"bcn", "vienna-dias"}
    assert second.refused == {"msk": "its privacy budget for training is used up"}
