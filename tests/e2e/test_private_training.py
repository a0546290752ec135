"""Private training through FLARE's simulator: a site whose budget is used up stops training, the others go on."""

from pathlib import Path

import pytest

from fedmr_med.privacy.accountant import Noisy, epsilon
from tests.helpers.simulator import simulate, write_test_job
from tests.helpers.small import lenient, small_hospital, small_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CENTERS = {"bcn": 0, "msk": 4, "vienna-dias": 5}


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
    sites = {
        site: f"data: {{source: demo, center: {center}}}\n"
        "policy: {share_prototypes: true, share_metrics: per_class, training: null"
        + (f", training_privacy: {{epsilon: {1.01 * one_round}}}}}\n" if site == "msk" else "}\n")
        for site, center in CENTERS.items()
    }
    done = simulate(write_test_job(tmp_path / "job", job, sites), tmp_path / "workspace", "-t", "3")
    assert done.exit_code == 0, done.output[-3000:]
    first, second = done.state(job).history.rounds
    assert set(first.sites) == set(CENTERS)
    assert first.sites["msk"].training_epsilon == pytest.approx(one_round)
    assert set(second.sites) == {"bcn", "vienna-dias"}
    assert second.refused == {"msk": "its privacy budget for training is used up"}
