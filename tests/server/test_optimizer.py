"""The server's optimisers against their formulas, step by step."""

from pathlib import Path

import numpy as np
import pytest

from fedmr_med.config import ServerConfig
from fedmr_med.jobs.catalog import job_for
from fedmr_med.server.optimizer import server_step
from tests.helpers.methods import Federation, job, same_model

RNG = np.random.default_rng(0)
BEFORE = {"w": RNG.normal(size=(3, 2)).astype(np.float32), "b": RNG.normal(size=3).astype(np.float32)}
AFTER = [{name: (a + RNG.normal(size=a.shape)).astype(np.float32) for name, a in BEFORE.items()} for _ in range(3)]


def steps(config: ServerConfig) -> list[dict[str, np.ndarray]]:
    """Take three steps; what the method makes of a round is its distance to BEFORE added to where the round started."""
    parameters, state, results = BEFORE, {}, []
    for after in AFTER:
        made = {name: parameters[name] + after[name] - BEFORE[name] for name in parameters}
        parameters, state = server_step(config, parameters, made, state)
        results.append(parameters)
    return results


def test_average_takes_the_methods_parameters_themselves() -> None:
    after, state = server_step(ServerConfig(), BEFORE, AFTER[0], {})
    assert after is AFTER[0]
    assert state == {}


def reference(kind: str, name: str) -> list[np.ndarray]:
    w, m, results = BEFORE[name].astype(np.float64), 0.0, []
    v = np.full(w.shape, 0.1**2)
    for after in AFTER:
        delta = after[name].astype(np.float64) - BEFORE[name]
        if kind == "sgd":
            m = 0.5 * m + delta
            w = w + 0.3 * m
        else:
            m = 0.9 * m + 0.1 * delta
            if kind == "adam":
                v = 0.8 * v + 0.2 * delta**2
            elif kind == "yogi":
                v = v - 0.2 * delta**2 * np.sign(v - delta**2)
            else:
                v = v + delta**2
            w = w + 0.3 * m / (np.sqrt(v) + 0.1)
        results.append(w)
    return results


@pytest.mark.parametrize("kind", ["sgd", "adam", "yogi", "adagrad"])
def test_steps_follow_the_papers_formulas(kind: str) -> None:
    config = ServerConfig(optimizer=kind, lr=0.3, momentum=0.5, betas=(0.9, 0.8), eps=0.1)
    for name in BEFORE:
        for step, expected in zip(steps(config), reference(kind, name), strict=True):
            np.testing.assert_allclose(step[name], expected, rtol=1e-5, atol=1e-5)
            assert step[name].dtype == np.float32


def test_fedadagrad_is_adagrad_on_the_updates() -> None:
    config = job_for("fmnist", "fedadagrad", model="small_cnn").federation.server
    for name, start in BEFORE.items():
        w, v = start.astype(np.float64), np.full(start.shape, config.eps**2)
        for step, after in zip(steps(config), AFTER, strict=True):
            delta = after[name].astype(np.float64) - start
            v = v + delta**2
            w = w + config.lr * delta / (np.sqrt(v) + config.eps)
            np.testing.assert_allclose(step[name], w, rtol=1e-5, atol=1e-5)


def test_a_job_names_the_optimiser_and_anchored_fedmr_has_momentum_of_its_own(tmp_path: Path) -> None:
    anchored, fedavg = job("fedmr", variant="anchored", mu2=0.0), job("fedavg")
    momentum = {"federation": {"server": {"optimizer": "sgd", "momentum": 0.5}}}
    average = {"federation": {"server": {"optimizer": "average"}}}
    states = []
    for number, config in enumerate((anchored, fedavg.override(momentum), fedavg, anchored.override(average))):
        federation = Federation(config, tmp_path / str(number))
        federation.round()
        federation.round()
        states.append(federation.state)
    assert same_model(states[0], states[1])
    assert not same_model(states[0], states[2])
    assert same_model(states[3], states[2]), "the job's word counts before the method's"
