"""A method is called by all that makes it another one."""

import pytest

from fedmr_med.jobs.catalog import isic_job, job_for
from fedmr_med.methods.label import label_of

LABELS = {
    "fedavg": "fedavg",
    "fedmr": "fedmr (replayed)",
    "fedavgm": "fedavg (server.optimizer sgd, server.momentum 0.5)",
    "fedlc": "fedavg (logits.kind calibrated)",
    "logit_adjustment": "fedavg (logits.kind adjusted)",
    "fedetf": "fedavg (classifier etf, logits.kind adjusted, logits.vacant one)",
}


@pytest.mark.parametrize("name", LABELS)
def test_variant_options_and_the_servers_optimizer_are_in_the_label(name: str) -> None:
    assert label_of(isic_job(name)) == LABELS[name]


def test_so_is_an_option_of_ones_own() -> None:
    job = job_for("fmnist", "fedmr", model="small_cnn", changes={"fedmr.mu2": 0.25, "fedmr.variant": "anchored"})
    assert label_of(job) == "fedmr (anchored, mu2 0.25)"
