"""FedNova: equal steps are FedAvg; what a site says about its steps is checked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.methods.base import Contribution, Options, Sums
from fedmr_med.methods.fednova import FedNova
from tests.helpers.errors import raises
from tests.helpers.methods import Federation, WithBatchNorm, job


def test_equal_steps_give_fedavg(tmp_path: Path) -> None:
    train = {"updates": 4}
    nova = Federation(job("fednova", train=train), tmp_path / "nova", WithBatchNorm)
    plain = Federation(job("fedavg", train=train), tmp_path / "plain", WithBatchNorm)
    for present in ("abc", "ac", "abc"):
        nova.round(present)
        plain.round(present)
    for name, expected in plain.state.model.items():
        np.testing.assert_allclose(nova.state.model[name], expected, rtol=0, atol=1e-6)


def test_small_updates_of_large_weights_are_not_lost() -> None:
    generator = np.random.default_rng(0)
    start = generator.uniform(64, 127, 9000).astype(np.float32)
    server, sums, update = FedNova(Options()).server(), Sums(), np.zeros(9000)
    for number in range(1, 21):
        end = start + generator.normal(0, 1e-3, 9000).astype(np.float32)
        update += (end.astype(np.float64) - start) / number / 20
        payload = {"effective_steps": np.asarray(number, np.float32)}
        server.add(sums, Contribution(f"site-{number}", 100, {"w": end}, payload), {"w": start})
    made, _ = server.finish(sums, {"w": start}, {}, 20)
    rounding = float(np.spacing(np.float32(64)))
    np.testing.assert_allclose(made["w"], start + 10.5 * update, rtol=0, atol=0.6 * rounding)


def test_unequal_steps_do_not(tmp_path: Path) -> None:
    nova, plain = (Federation(job(name), tmp_path / name, WithBatchNorm) for name in ("fednova", "fedavg"))
    nova.round()
    plain.round()
    assert np.abs(nova.state.model["conv.weight"] - plain.state.model["conv.weight"]).max() > 1e-3


@pytest.mark.parametrize("steps", [0.0, -3.0, 1e-9])
def test_less_than_one_step_is_refused(tmp_path: Path, steps: float) -> None:
    federation = Federation(job("fednova"), tmp_path)
    reply = federation.sites["a"].train(federation.task())
    forged = replace(reply, payload={"effective_steps": np.asarray(steps, dtype=np.float32)})
    with raises("wire.range", "effective_steps"):
        federation.close([forged])


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
def test_a_single_step_is_accepted_and_is_one(tmp_path: Path, momentum: float) -> None:
    federation = Federation(job("fednova", train={"updates": 1, "momentum": momentum}), tmp_path)
    (reply,) = federation.round("a")
    assert reply.payload["effective_steps"] == pytest.approx(1, abs=1e-5)


def test_adam_has_no_momentum_in_the_sense_of_sgd(tmp_path: Path) -> None:
    federation = Federation(job("fednova", train={"updates": 6, "optimizer": "adam", "lr": 0.001}), tmp_path)
    (reply,) = federation.round("a")
    assert reply.payload["effective_steps"] == 6
