"""FedProc: what happens without prototypes, or without that of the own class."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedmr_med.methods.base import Batch
from fedmr_med.methods.fedproc import FedProc, FedProcClient, FedProcOptions
from fedmr_med.methods.reshaping import ReshapingOptions
from fedmr_med.prototypes import Prototypes
from fedmr_med.site.training import class_sums
from tests.helpers.methods import CLASSES, FEATURES, Federation, WithBatchNorm, job, local_round, same_model


def client(available: list[bool], **options: object) -> FedProcClient:
    known = torch.tensor(available)
    torch.manual_seed(0)
    means = torch.randn(CLASSES, FEATURES) * known[:, None]
    prototypes = Prototypes(means, known, torch.zeros(CLASSES, dtype=torch.int64))
    local = replace(local_round(4, 0.9), prototypes=prototypes, round=1, rounds=4)
    return FedProcClient(FedProcOptions(mu=1.0, **options), local)


def batch(labels: list[int]) -> Batch:
    features = torch.randn(len(labels), FEATURES, generator=torch.Generator().manual_seed(1), requires_grad=True)
    return Batch(features, torch.tensor(labels), features, torch.zeros(len(labels), CLASSES), torch.tensor(2.0))


@pytest.mark.parametrize("schedule", ["constant", "original"])
def test_without_prototypes_only_the_classification_loss_counts(schedule: str) -> None:
    data = batch([0, 1, 2])
    terms = client([False] * CLASSES, schedule=schedule).objective(data)
    assert float(terms["classification"]) == 2.0
    assert terms["contrast"].item() == 0.0
    terms["contrast"].backward()
    assert torch.equal(data.features.grad, torch.zeros_like(data.features))


@pytest.mark.parametrize("schedule", ["constant", "original"])
def test_the_first_round_is_fedavgs(tmp_path: Path, schedule: str) -> None:
    fedproc = Federation(job("fedproc", mu=1.0, schedule=schedule), tmp_path / "fedproc", WithBatchNorm)
    fedavg = Federation(job("fedavg"), tmp_path / "fedavg", WithBatchNorm)
    fedproc.round()
    fedavg.round()
    assert same_model(fedproc.state, fedavg.state)
    fedproc.round()
    fedavg.round()
    assert not same_model(fedproc.state, fedavg.state)


def test_samples_without_a_prototype_of_their_class_take_no_part() -> None:
    some = client([True, True, False, False, False])
    data = batch([0, 2, 4])
    loss = some.objective(data)["contrast"]
    loss.backward()
    assert torch.isfinite(loss)
    assert loss > 0
    assert data.features.grad[0].abs().sum() > 0
    assert torch.equal(data.features.grad[1:], torch.zeros(2, FEATURES))


def test_a_class_without_a_prototype_is_no_negative_either() -> None:
    a, b = client([True, True, False, False, False]), client([True, True, True, False, False])
    data = batch([0, 1])
    assert a.objective(data)["contrast"] < b.objective(data)["contrast"]


def test_prototypes_are_means_of_unit_features_unless_fedmr_uses_them_too(tmp_path: Path) -> None:
    unit = Federation(job("fedproc"), tmp_path / "unit", WithBatchNorm)
    replies = {reply.site: reply for reply in unit.round()}
    everything = class_sums(unit.sites["a"].network, unit.sites["a"].batches.plain, CLASSES, unit=True)
    assert torch.equal(replies["a"].prototypes.sums, everything.sums)
    assert float((replies["a"].prototypes.sums.norm(dim=1) / everything.counts.clamp(min=1)).max()) <= 1
    assert not FedProc(FedProcOptions(average="as_they_are")).unit_prototypes
    assert not FedProc(FedProcOptions(reshaping=ReshapingOptions())).unit_prototypes


def test_the_original_schedule_moves_from_contrast_to_classification() -> None:
    data = batch([0, 1])
    start = client([True] * CLASSES, schedule="original")
    contrast = client([True] * CLASSES).objective(data)["contrast"].item()
    for number, share in ((1, 0.25), (3, 0.75)):
        start.local = replace(start.local, round=number)
        terms = start.objective(data)
        assert float(terms["classification"]) == pytest.approx(share * 2.0)
        assert terms["contrast"].item() == pytest.approx((1 - share) * contrast)
