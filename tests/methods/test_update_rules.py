"""Every method against the numpy calculation of ``reference.py``.

Three clients of unequal size, momentum .9 and weight decay on; client b is absent in the second round and back in
the third.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers import reference
from tests.helpers.methods import POLICY, compare, job

RULES = [
    ("fedprox", reference.FedProx, {"mu": 0.5}),
    ("fedproc", reference.FedProc, {"mu": 0.5}),
    ("fedproc", reference.FedProc, {"mu": 0.5, "average": "as_they_are"}),
    ("fedproc", reference.FedProc, {"schedule": "original", "mu": 0.0}),
    ("fednova", reference.FedNova, {}),
    ("moon", reference.Moon, {"mu": 2.0}),
    ("feddyn", reference.FedDyn, {"alpha": 0.3, "clip": None}),
    ("feddyn", reference.FedDyn, {"alpha": 0.3, "clip": 0.4}),
    ("feddyn", reference.FedDyn, {"alpha": 0.3, "clip": None, "mean_samples": 12.5}),
    ("feddc", reference.FedDC, {"alpha": 0.3, "clip": None}),
    ("feddc", reference.FedDC, {"alpha": 0.3, "clip": 0.4}),
    ("feddc", reference.FedDC, {"alpha": 0.3, "clip": None, "mean_samples": 12.5}),
    ("scaffold", reference.Scaffold, {}),
    ("fedmr", reference.FedMR, {"variant": "paper", "mu1": 0.5, "mu2": 0.5}),
]


class FedProxWithReshaping(reference.FedProx, reference.FedMR):
    """FedProx given FedMR's losses."""


RULES += [("fedprox", FedProxWithReshaping, {"mu": 0.5, "reshaping": {"mu1": 0.5, "mu2": 0.5}})]


@pytest.fixture(scope="module")
def fedavg(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    federation, _ = compare(job("fedavg"), reference.FedAvg, tmp_path_factory.mktemp("fedavg"))
    return federation.state.model["classifier.weight"]


@pytest.mark.parametrize(("method", "rule", "options"), RULES)
def test_the_global_model_follows_the_rule(
    tmp_path: Path, fedavg: np.ndarray, method: str, rule: type, options: dict
) -> None:
    federation, _ = compare(job(method, **options), rule, tmp_path)
    # The rule must matter at this size, or the comparison would prove nothing.
    assert np.abs(federation.state.model["classifier.weight"] - fedavg).max() > 1e-3


@pytest.mark.parametrize(("method", "rule"), [("feddyn", reference.FedDyn), ("feddc", reference.FedDC)])
def test_sites_that_join_late(tmp_path: Path, method: str, rule: type) -> None:
    compare(job(method, rounds=4, alpha=0.3, clip=None), rule, tmp_path, ("ac", "a", "abc", "b"))


@pytest.mark.parametrize(("method", "rule"), [("feddyn", reference.FedDyn), ("feddc", reference.FedDC)])
def test_sites_and_server_weigh_by_the_same_rounded_numbers(tmp_path: Path, method: str, rule: type) -> None:
    rounded = POLICY.model_copy(update={"round_samples": 15})  # 6, 11 and 18 images count as 15, 15 and 30
    compare(job(method, alpha=0.3, clip=None), rule, tmp_path, policy=rounded)


def test_feddyn_keeps_the_drift_of_every_site(tmp_path: Path) -> None:
    federation, expected = compare(job("feddyn", alpha=0.3), reference.FedDyn, tmp_path)
    for k, name in enumerate("abc"):
        for parameter, h in expected.h[k].items():
            np.testing.assert_allclose(federation.kept(name)[f"h.{parameter}"], h, atol=2e-6)
            total = sum(drift[parameter] for drift in expected.h)
            np.testing.assert_allclose(federation.state.method[f"h.{parameter}"], total, atol=5e-6)


def test_feddc_keeps_drift_and_control_of_every_site(tmp_path: Path) -> None:
    federation, expected = compare(job("feddc", alpha=0.3), reference.FedDC, tmp_path)
    for k, name in enumerate("abc"):
        for parameter in expected.w:
            kept = federation.kept(name)
            np.testing.assert_allclose(kept[f"h.{parameter}"], expected.h[k][parameter], atol=2e-6)
            np.testing.assert_allclose(kept[f"c.{parameter}"], expected.c_local[k][parameter], atol=2e-6)
    sent = federation.method.server().client_view(federation.state.method)
    for parameter, c in expected.c.items():
        np.testing.assert_allclose(sent[f"c.{parameter}"], c, atol=2e-6)


def test_scaffold_keeps_the_control_of_every_site(tmp_path: Path) -> None:
    federation, expected = compare(job("scaffold", rounds=4), reference.Scaffold, tmp_path, ("ac", "a", "abc", "b"))
    for parameter, c in expected.c.items():
        np.testing.assert_allclose(federation.state.method[f"c.{parameter}"], c, atol=2e-6)
        for k, name in enumerate("abc"):
            np.testing.assert_allclose(
                federation.kept(name)[f"c.{parameter}"], expected.c_local[k][parameter], atol=2e-6
            )


def test_the_control_of_feddc_estimates_the_gradient(tmp_path: Path) -> None:
    # With effective steps the control is of the size of a gradient; with plain steps it would be several times that.
    federation, expected = compare(job("feddc", alpha=0.0), reference.FedDC, tmp_path, ("abc",))
    x, y = next(iter(federation.sites["c"].batches.plain.epoch("all", shuffle=False)))
    gradient = reference.FedAvg.gradient(expected, 2, expected.w, x.flatten(1).double().numpy(), y.numpy())
    size = np.sqrt(sum((g**2).sum() for g in gradient.values()))
    control = np.sqrt(sum((c**2).sum() for c in expected.c_local[2].values()))
    assert 0.2 < control / size < 5
