"""The anchor loss against a loop, and at its edges."""

import math

import pytest
import torch
from torch.nn import functional as F

from fedmr_med.losses import anchor_loss, inter_class_loss
from fedmr_med.prototypes import ClassSums, Prototypes

TORCH = torch.Generator().manual_seed(0)
FEATURES = torch.randn(12, 6, generator=TORCH)
LABELS = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
PROTOTYPES = 30 * torch.randn(5, 6, generator=TORCH)


def by_loop(available: list[int], radius: float) -> float:
    classes = []
    for c in sorted(set(LABELS.tolist()) & set(available)):
        direction = PROTOTYPES[c] / PROTOTYPES[c].norm()
        rows = FEATURES[c == LABELS]
        classes.append(sum(float((z / radius - direction).norm()) for z in rows) / len(rows))
    return sum(classes) / len(classes)


@pytest.mark.parametrize("available", [[0, 1, 2, 3, 4], [1, 3], [2]])
@pytest.mark.parametrize("radius", [None, 2.0])
def test_it_is_the_mean_over_classes_of_the_mean_distance(available: list[int], radius: float | None) -> None:
    mask = torch.zeros(5, dtype=torch.bool)
    mask[available] = True
    loss = anchor_loss(FEATURES, LABELS, PROTOTYPES, available=mask, radius=radius)
    assert float(loss) == pytest.approx(by_loop(available, radius or math.sqrt(6) / 2), rel=1e-5)


def test_only_the_direction_of_a_prototype_counts() -> None:
    a, b = (anchor_loss(FEATURES, LABELS, factor * PROTOTYPES) for factor in (1.0, 1e-3))
    torch.testing.assert_close(a, b)


def test_no_prototype_gives_a_zero_that_is_connected() -> None:
    features = FEATURES.clone().requires_grad_()
    loss = anchor_loss(features, LABELS, PROTOTYPES, available=torch.zeros(5, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert bool((features.grad == 0).all())


def test_the_gradient_is_finite_on_the_anchor_itself() -> None:
    features = (PROTOTYPES[:1] / PROTOTYPES[:1].norm() * math.sqrt(6) / 2).requires_grad_()
    anchor_loss(features, torch.tensor([0]), PROTOTYPES).backward()
    assert bool(features.grad.isfinite().all())


def test_a_prototype_of_zeros_is_the_centre() -> None:
    loss = anchor_loss(FEATURES[:1], LABELS[:1], torch.zeros(5, 6), radius=2.0)
    assert float(loss) == pytest.approx(float(FEATURES[0].norm()) / 2)


def test_lite_takes_some_samples_and_mistakes_are_named() -> None:
    generator = torch.Generator().manual_seed(1)
    some = anchor_loss(FEATURES, LABELS, PROTOTYPES, lite=4, generator=generator)
    assert some != anchor_loss(FEATURES, LABELS, PROTOTYPES)
    assert anchor_loss(FEATURES, LABELS, PROTOTYPES, lite=0) == 0
    with pytest.raises(ValueError, match="lite must not be negative"):
        anchor_loss(FEATURES, LABELS, PROTOTYPES, lite=-1)
    with pytest.raises(ValueError, match="radius must be positive"):
        anchor_loss(FEATURES, LABELS, PROTOTYPES, radius=0)
    with pytest.raises(ValueError, match="prototypes must be"):
        anchor_loss(FEATURES, LABELS, PROTOTYPES[:, :3])


def lengths_by_round(anchored: bool) -> list[float]:
    """Train free features against a fixed classifier, with prototypes that follow them; return their mean lengths."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    features = torch.randn(40, 16, generator=generator).requires_grad_()
    classifier = torch.randn(4, 16, generator=generator)
    prototypes, found = Prototypes.none(4, 16), []
    for _ in range(40):
        for _ in range(20):
            pull = (
                anchor_loss(features, labels, prototypes.means, available=prototypes.available)
                if anchored
                else inter_class_loss(features, labels, prototypes.means, available=prototypes.available, margin=False)
            )
            # A weak classifier rewards longer features for ever.
            loss = F.cross_entropy(0.05 * features @ classifier.T, labels) + 0.5 * pull
            (gradient,) = torch.autograd.grad(loss, features)
            with torch.no_grad():
                features -= 5 * gradient
        sums = ClassSums.from_features(features, labels, 4)
        prototypes = prototypes.updated(sums, inertia=0.8 if anchored else 0.0)
        found.append(float(sums.norm or 0))
    return found


def test_the_sphere_bounds_features_that_prototypes_which_follow_them_let_run_away() -> None:
    anchored, following = lengths_by_round(anchored=True), lengths_by_round(anchored=False)
    assert max(anchored[-10:]) < 1.5 * math.sqrt(16) / 2
    assert anchored[-1] == pytest.approx(anchored[-20], rel=0.01)
    assert following[-1] > 1.1 * following[-20]
    assert all(later > earlier for earlier, later in zip(following[-10:], following[-9:], strict=False))
