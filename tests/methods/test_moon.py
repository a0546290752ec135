"""MOON: its two frozen models, and the projection head of the original."""

from pathlib import Path

import numpy as np

from fedmr_med import models
from fedmr_med.models.job_network import build_network
from tests.helpers.methods import Federation, Tiny, WithBatchNorm, job, same_model


def test_the_term_is_zero_until_a_site_has_a_previous_model(tmp_path: Path) -> None:
    moon = Federation(job("moon", mu=5.0), tmp_path / "moon", WithBatchNorm)
    plain = Federation(job("fedavg"), tmp_path / "plain", WithBatchNorm)
    first = moon.round("ac")
    plain.round("ac")
    assert [reply.report.terms["contrast"] for reply in first] == [0.0, 0.0]
    assert same_model(moon.state, plain.state)
    a, b, c = moon.round("abc")
    assert a.report.terms["contrast"] > 0
    assert c.report.terms["contrast"] > 0
    assert b.report.terms["contrast"] == 0


def test_the_whole_local_model_is_kept_and_none_of_it_is_sent(tmp_path: Path) -> None:
    federation = Federation(job("moon"), tmp_path, WithBatchNorm)
    replies = federation.round()
    for reply in replies:
        kept = federation.kept(reply.site)
        assert kept.keys() == reply.model.keys()
        assert all(np.array_equal(kept[name], reply.model[name]) for name in kept)
        assert reply.payload == {}


def test_the_projection_head_is_part_of_the_model(tmp_path: Path) -> None:
    federation = Federation(job("moon", projection=6, mu=1.0), tmp_path, WithBatchNorm)
    shapes = {name: array.shape for name, array in federation.state.model.items()}
    assert shapes["projection.0.weight"] == (8, 8)
    assert shapes["projection.2.weight"] == (6, 8)
    assert shapes["classifier.weight"] == (5, 6)
    assert not any(name.startswith("body.classifier") for name in shapes)
    before = federation.state.model
    federation.round()
    federation.round()
    moved = [
        name for name in federation.state.parameters if not np.array_equal(before[name], federation.state.model[name])
    ]
    assert set(moved) == federation.state.parameters


def test_server_and_sites_build_the_same_projected_network() -> None:
    config = job("moon", projection=6)
    a, b = build_network(config), build_network(config, pretrained=True)
    assert a.feature_size == 6
    arrays = models.state_arrays(a)
    assert all(np.array_equal(array, arrays[name]) for name, array in models.state_arrays(b).items())
    assert "projection.0.weight" not in models.state_arrays(build_network(job("moon")))


def test_the_temperature_matters(tmp_path: Path) -> None:
    soft, sharp = (Federation(job("moon", mu=2.0, temperature=t), tmp_path / str(t), Tiny) for t in (0.5, 0.1))
    for federation in (soft, sharp):
        federation.round()
        federation.round()
    assert not same_model(soft.state, sharp.state)
