"""What sites keep, when rounds are repeated or refused and processes come and go. For MOON, FedDyn, FedDC, SCAFFOLD."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.errors import CheckpointError
from tests.helpers.errors import raises
from tests.helpers.methods import Federation, WithBatchNorm, job, same_model

STATEFUL = [("moon", {"mu": 1.0}), ("feddyn", {"alpha": 0.1}), ("feddc", {"alpha": 0.1}), ("scaffold", {})]
each_method = pytest.mark.parametrize(("name", "options"), STATEFUL)


def open_federation(name: str, options: dict, folder: Path) -> Federation:
    return Federation(job(name, **options), folder, WithBatchNorm)


def assert_same(a: Federation, b: Federation) -> None:
    """Models, server state and every site's own state are equal bit for bit."""
    assert same_model(a.state, b.state)
    assert all(np.array_equal(a.state.method[key], b.state.method[key]) for key in a.state.method | b.state.method)
    for site in a.sites:
        mine, theirs = a.kept(site), b.kept(site)
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[key], theirs[key]) for key in mine)


@each_method
def test_a_repeated_round_counts_once(tmp_path: Path, name: str, options: dict) -> None:
    once, twice = (open_federation(name, options, tmp_path / folder) for folder in ("once", "twice"))
    for number in range(3):
        once.round()
        for site in "abc"[: number + 1]:
            twice.sites[site].train(twice.task())  # the server was killed before it counted these
            twice.sites[site] = twice.open(site)
        twice.round()
    assert_same(once, twice)


@each_method
def test_new_processes_every_round_change_nothing(tmp_path: Path, name: str, options: dict) -> None:
    steady, restarted = (open_federation(name, options, tmp_path / folder) for folder in ("steady", "restarted"))
    for present in ("abc", "ac", "abc"):
        steady.round(present)
        restarted.sites = {site: restarted.open(site) for site in restarted.sites}
        restarted.round(present)
    assert_same(steady, restarted)


@each_method
def test_a_refused_round_is_as_if_the_site_had_been_absent(tmp_path: Path, name: str, options: dict) -> None:
    absent, refused = (open_federation(name, options, tmp_path / folder) for folder in ("absent", "refused"))
    absent.round()
    refused.round()
    absent.round("ac")
    poisoned = refused.sites["b"].train(refused.task())
    with raises("wire.not-finite"):
        weights = {key: array * np.nan for key, array in poisoned.model.items() if array.dtype == np.float32}
        refused.close([replace(poisoned, model=poisoned.model | weights)])
    refused.round("ac")
    absent.round()
    refused.round()
    assert_same(absent, refused)


@each_method
def test_a_site_that_lost_its_state_stops_and_says_so(tmp_path: Path, name: str, options: dict) -> None:
    federation = open_federation(name, options, tmp_path)
    federation.round()
    folder = tmp_path / "b" / "chains" / "chain" / name
    (folder / "round-000000.npz").unlink()
    with pytest.raises(CheckpointError, match=r"round 1, but .*round-000000.npz is missing. Restore .* new chain"):
        federation.sites["b"].train(federation.task())
    federation.round("ac")


def test_methods_without_state_leave_no_files(tmp_path: Path) -> None:
    federation = open_federation("fedprox", {}, tmp_path)
    federation.round()
    federation.round()
    assert list(tmp_path.rglob("*")) == []


def test_the_sites_learn_the_mean_size_and_no_single_one(tmp_path: Path) -> None:
    federation = open_federation("feddyn", {}, tmp_path)
    assert federation.task().method == {}
    federation.round("ac")
    assert {key: float(value) for key, value in federation.task().method.items()} == {"mean_samples": (6 + 18) / 2}
    federation.round("b")
    assert float(federation.task().method["mean_samples"]) == (6 + 11 + 18) / 3
    known = open_federation("feddyn", {"mean_samples": 40}, tmp_path / "known")
    assert float(known.task().method["mean_samples"]) == 40


@pytest.mark.parametrize("name", ["feddc", "scaffold"])
def test_a_control_needs_a_learning_rate(tmp_path: Path, name: str) -> None:
    federation = Federation(job(name, train={"epochs": 1, "lr": 0}), tmp_path)
    with raises("config.value", "train.lr"):
        federation.round()
