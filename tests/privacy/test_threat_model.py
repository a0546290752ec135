"""What SECURITY.md admits: these tests show leaks that the threat model names, so that it stays honest."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedmr_med.models import load_arrays
from fedmr_med.models.job_network import build_network
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


def test_the_update_of_an_opted_out_site_can_carry_the_features_of_single_images(tmp_path: Path) -> None:
    """From a classifier of zeros, a batch of two images of classes a and b moves w_a - w_c by half of a's features."""
    train = {"optimizer": "sgd", "updates": 1, "batch_size": 2, "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0}
    job = small_job("fedavg", train=train, loss={"name": "cross_entropy"}, federation={"rounds": 5})
    hospital = small_hospital("msk", job, tmp_path, CLOSED)
    state = initial_state(job)
    zeros = {name: np.zeros_like(state.model[name]) for name in ("classifier.weight", "classifier.bias")}
    state = replace(state, model=state.model | zeros)
    network = build_network(job)
    load_arrays(network, state.model)
    network.eval()
    with torch.no_grad():
        batches = hospital.batches.plain.epoch("all", shuffle=False)
        features = torch.cat([network(images)[0] for images, _ in batches]).numpy()

    solved = 0
    for round_index in range(5):
        reply = hospital.train(task_for(replace(state, round=round_index), job))
        weight, bias = reply.model["classifier.weight"], reply.model["classifier.bias"]
        held, absent = np.flatnonzero(bias > 0), int(bias.argmin())
        for c in held if len(held) == 2 else ():
            read_off = 2 * (weight[c] - weight[absent])
            nearest = np.linalg.norm(features - read_off, axis=1).min()
            solved += bool(nearest < 1e-5 * np.linalg.norm(read_off))
    assert solved >= 2
