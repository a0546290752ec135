"""What the studies compute themselves."""

import numpy as np
import pytest
import torch

from fedmr_med.lab.studies.analyses import eigenvalue_variance, rounds_to
from fedmr_med.lab.studies.toy import CENTRES, LOCAL, angle, discs, spread, train_toy
from tests.helpers.results import run_of


def test_eigenvalue_variance_against_numpy() -> None:
    generator = np.random.default_rng(0)
    features = torch.from_numpy(generator.normal(size=(128, 60)) @ generator.normal(size=(60, 60)))
    correlation = np.corrcoef(features.numpy().T) * 128 / 127
    largest = np.sort(np.linalg.eigvalsh(correlation))[::-1][:50]
    expected = ((largest - largest.mean()) ** 2).sum() / 128
    assert eigenvalue_variance(features) == pytest.approx(expected, rel=1e-6)


def test_uncorrelated_features_vary_less_than_collapsed_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(128, 64, generator=generator)
    collapsed = torch.randn(128, 1, generator=generator) + 0.1 * wide
    assert eigenvalue_variance(collapsed) > 10 * eigenvalue_variance(wide)
    assert eigenvalue_variance(torch.cat([wide, torch.ones(128, 1)], 1)) > 0, "a constant dimension does no harm"


def test_rounds_to_an_accuracy() -> None:
    entry = run_of(0.2, 0.6, 0.5, None, 0.9)
    assert [rounds_to(a, entry) for a in (0.1, 0.6, 0.7, 0.95)] == [1, 2, 5, None]


def test_the_papers_45_degrees() -> None:
    optimal, averaged = np.array([-np.sqrt(3) / 2, 0.5]), np.array([-1 / 6, (np.sqrt(3) + 2) / 6])
    assert angle(averaged, optimal) == pytest.approx(45.0, abs=1e-9)
    assert angle(optimal, optimal) == pytest.approx(0.0, abs=1e-5)


def test_discs_are_uniform() -> None:
    points, labels = discs(CENTRES, 4000, torch.Generator().manual_seed(0))
    distances = (points - torch.tensor(CENTRES)[labels]).norm(dim=1)
    assert distances.max() <= 0.5
    # Half of a disc's area lies within 1 / sqrt(2) of its radius.
    assert (distances < 0.5 / 2**0.5).double().mean() == pytest.approx(0.5, abs=0.02)


def test_the_reshaped_features_spread_more_than_the_collapsed_ones() -> None:
    points, labels = discs(CENTRES, 500, torch.Generator().manual_seed(0))
    local = torch.isin(labels, torch.tensor(LOCAL))
    whole = train_toy(points, labels, 20, seed=0)
    prototypes = torch.stack([whole(points[labels == c])[0].mean(0) for c in range(4)]).detach()
    collapsed = train_toy(points[local], labels[local], 20, seed=0)
    reshaped = train_toy(points[local], labels[local], 20, seed=0, prototypes=prototypes)
    values = [spread(network(points[local])[0].detach()) for network in (collapsed, reshaped)]
    assert values[1] > values[0]
