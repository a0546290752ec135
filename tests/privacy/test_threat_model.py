"""What SECURITY.md admits: these tests show leaks that the threat model names, so that it stays honest."""

from pathlib import Path

import numpy as np

from tests.helpers.small import CLOSED, initial_state, small_hospital, small_job, task_for


def test_the_update_of_an_opted_out_site_can_carry_its_class_histogram(tmp_path: Path) -> None:
    """One step of gradient descent on all images moves the classifier's bias by about n_c / N - 1 / C."""
    train = {"optimizer": "sgd", "updates": 1, "batch_size": 10_000, "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0}
    job = small_job("fedavg", train=train, loss={"name": "cross_entropy", "class_weights": "none"})
    hospital = small_hospital("msk", job, tmp_path, CLOSED)
    state = initial_state(job)

    reply = hospital.train(task_for(state, job))

    assert reply.prototypes is None, "the site has opted out"
    moved = reply.model["classifier.bias"] - state.model["classifier.bias"]
    read_off = reply.samples * (moved + 1 / job.task.num_classes)
    assert np.abs(read_off - hospital.counts).max() < 1.5, (read_off, hospital.counts)
    assert ((read_off > 2) == (hospital.counts > 0)).all(), "which classes it holds"
