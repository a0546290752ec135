"""Prototype replay: a site's classifier sees the prototypes of the classes that only others hold."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedmr_med import methods
from fedmr_med.config import JobConfig, load_job
from fedmr_med.losses import replay_loss
from fedmr_med.methods.reshaping import ManifoldReshaping
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises
from tests.helpers.methods import CLASSES, HOLDINGS, POLICY, Federation, job, same_model

REPLAYED = job("fedmr", rounds=4)


def losses_of(federation: Federation, name: str) -> ManifoldReshaping:
    """Return the losses of a site in the round that comes next."""
    site = federation.sites[name]
    held = torch.from_numpy(site.counts) > 0
    options = methods.build(REPLAYED.method).reshaping
    assert options is not None
    return ManifoldReshaping(
        options,
        federation.state.prototypes,
        held=held,
        classify=site.network.classifier,
        generator=torch.Generator(),
    )


def test_it_is_the_mean_over_the_missing_classes() -> None:
    logits, classes = torch.randn(3, CLASSES), torch.tensor([0, 2, 4])
    torch.testing.assert_close(replay_loss(logits, classes), F.cross_entropy(logits, classes))
    assert replay_loss(logits[:0].requires_grad_(), classes[:0]).item() == 0


def test_each_site_replays_the_classes_that_it_lacks_and_others_share(tmp_path: Path) -> None:
    federation = Federation(REPLAYED, tmp_path)
    first = federation.round()
    assert all(reply.report.terms["replay"] == 0 for reply in first)
    known = federation.state.prototypes.available
    for name, (held, _) in HOLDINGS.items():
        expected = sorted(set(known.nonzero()[:, 0].tolist()) - set(held))
        assert losses_of(federation, name).replayed.tolist() == expected != []
    assert all(reply.report.terms["replay"] > 0 for reply in federation.round())


def test_it_trains_the_classifier_alone(tmp_path: Path) -> None:
    federation = Federation(REPLAYED, tmp_path)
    federation.round()
    network = federation.sites["a"].network
    features, _ = network(torch.randn(4, 1, 3, 3))
    network.zero_grad()
    losses_of(federation, "a").terms(features, torch.tensor([0, 1, 0, 1]))["replay"].backward()
    moved = {name for name, tensor in network.named_parameters() if tensor.grad is not None and tensor.grad.any()}
    assert moved == {"classifier.weight", "classifier.bias"}


def test_where_nobody_shares_it_is_the_anchored_variant(tmp_path: Path) -> None:
    def silent(config: JobConfig, folder: str) -> Federation:
        federation = Federation(config, tmp_path / folder)
        for site in federation.sites.values():
            site.releases.sums.policy = POLICY.model_copy(update={"share_prototypes": False})
        return federation

    replayed, anchored = silent(REPLAYED, "r"), silent(job("fedmr", variant="anchored", rounds=4), "a")
    for federation in (replayed, anchored):
        for _ in range(3):
            federation.round()
    assert all(np.array_equal(array, anchored.state.model[name]) for name, array in replayed.state.model.items())


def test_sharing_changes_what_is_trained(tmp_path: Path) -> None:
    """So that the comparison above can fail."""
    replayed, anchored = (
        Federation(config, tmp_path / config.method.options.get("variant", "default"))
        for config in (REPLAYED, job("fedmr", variant="anchored", rounds=4))
    )
    for federation in (replayed, anchored):
        for _ in range(2):
            federation.round()
    assert not same_model(replayed.state, anchored.state)


@pytest.mark.parametrize("options", [{}, {"variant": "anchored", "replay": 1}], ids=str)
def test_private_training_refuses_it_for_it_tells_the_classes_of_a_site(options: dict[str, object]) -> None:
    with raises("config.conflict", "method.options"):
        methods.build(job("fedmr", **options).method).check_per_sample()


def test_the_readme_names_the_terms_that_the_default_trains_with(tmp_path: Path) -> None:
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    sentence = next(part for part in readme.split(". ") if part.startswith("The default adds"))
    (reply, *_) = Federation(REPLAYED, tmp_path).round()
    assert re.findall(r"\*(\w+)\*", sentence) == list(reply.report.terms)
    shown = (REPOSITORY / "docs" / "judging-a-model.md").read_text(encoding="utf-8")
    (logged,) = re.findall(r"· loss (.+?) ·", shown)
    assert re.findall(r"[\d.]+ (\w+)", logged) == list(reply.report.terms)


def test_the_real_job_and_its_demo_train_with_the_default() -> None:
    real = load_job(REPOSITORY / "jobs" / "isic_fedmr" / "app" / "config" / "fedmr.yaml")
    for config in (real, real.for_demo()):
        assert methods.build(config.method).options == methods.build(REPLAYED.method).options
