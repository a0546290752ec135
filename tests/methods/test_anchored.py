"""Anchored FedMR: slow prototypes, own prototypes for what is withheld, and the same training either way."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedmr_med import methods
from fedmr_med.config import MethodConfig
from tests.helpers.errors import raises
from tests.helpers.methods import POLICY, Federation, job, same_model

ANCHORED = job("fedmr", variant="anchored", rounds=4)
# Every class has one holder, so that the global prototype of a class is its holder's own.
DISJOINT = {"a": ((0, 1), 6), "b": ((2,), 11), "c": ((3,), 18)}


def test_options_take_the_variants_defaults() -> None:
    replayed, anchored, paper = (
        methods.build(MethodConfig(name="fedmr", options=options)).options
        for options in ({}, {"variant": "anchored"}, {"variant": "paper"})
    )
    for options, replay in ((replayed, 1.0), (anchored, 0.0)):
        assert (options.mu1, options.mu2, options.inertia, options.replay) == (0.0, 0.5, 0.8, replay)
    assert (paper.mu1, paper.mu2, paper.inertia, paper.replay) == (0.01, 0.0001, 0.0, 0.0)
    with raises("config.conflict", "method.options.variant"):
        methods.build(MethodConfig(name="fedmr", options={"margin": False}))


def test_global_prototypes_move_by_a_fifth(tmp_path: Path) -> None:
    federation = Federation(ANCHORED, tmp_path)
    federation.round()
    before = federation.state.prototypes
    replies = federation.round()
    sums = replies[0].prototypes + replies[1].prototypes + replies[2].prototypes
    new = sums.sums / sums.counts.clamp(min=1)[:, None]
    expected = 0.8 * before.means + 0.2 * new.float()
    shared = sums.counts > 0
    torch.testing.assert_close(federation.state.prototypes.means[shared], expected[shared])


def test_the_anchor_takes_part_from_the_second_round_on(tmp_path: Path) -> None:
    federation = Federation(ANCHORED, tmp_path)
    first, second = federation.round(), federation.round()
    assert all(reply.report.terms["anchor"] == 0 for reply in first)
    assert all(reply.report.terms["anchor"] > 0 for reply in second)


def withholding(federation: Federation) -> Federation:
    """Let all sites opt out."""
    for site in federation.sites.values():
        site.releases.sums.policy = POLICY.model_copy(update={"share_prototypes": False})
    return federation


def test_opting_out_costs_nothing_where_each_class_has_one_holder(tmp_path: Path) -> None:
    """The own prototype is the global one, so training is the same to the last bits of the sums' float32."""
    sharing = Federation(ANCHORED, tmp_path / "sharing", holdings=DISJOINT)
    silent = withholding(Federation(ANCHORED, tmp_path / "silent", holdings=DISJOINT))
    for _ in range(4):
        sharing.round()
        replies = silent.round()
        assert all(reply.prototypes is None for reply in replies)
    assert not silent.state.prototypes.available.any()
    for name, array in sharing.state.model.items():
        np.testing.assert_allclose(silent.state.model[name], array, rtol=1e-4, atol=1e-6)


def test_without_own_prototypes_an_opt_out_trains_otherwise(tmp_path: Path) -> None:
    """So that the comparison above can fail."""
    config = job("fedmr", variant="anchored", own_prototypes=False, rounds=4)
    sharing = Federation(config, tmp_path / "sharing", holdings=DISJOINT)
    silent = withholding(Federation(config, tmp_path / "silent", holdings=DISJOINT))
    for _ in range(3):
        sharing.round()
        silent.round()
    assert not same_model(sharing.state, silent.state)


def test_a_repeated_round_starts_from_the_accepted_own_prototypes(tmp_path: Path) -> None:
    federation = withholding(Federation(ANCHORED, tmp_path, holdings=DISJOINT))
    federation.round()
    task = federation.task()
    first, again = federation.sites["b"].train(task), federation.sites["b"].train(task)
    assert all(np.array_equal(first.model[name], again.model[name]) for name in first.model)


def test_a_policy_that_became_stricter_does_not_stop_the_site(tmp_path: Path) -> None:
    federation = Federation(ANCHORED, tmp_path)
    federation.round()
    withholding(federation)
    federation.state = replace(federation.state)
    assert all(reply.prototypes is None for reply in federation.round())
