"""The two losses against plain loops over classes and samples, and at their edges."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedmr_med.losses import anchor_loss, inter_class_loss, intra_class_loss, replay_loss

SCALES = ("released", "paper")


def loop_intra(features: Tensor, labels: Tensor, scale: str) -> float:
    d = features.shape[1]
    terms, samples = [], 0
    for c in labels.unique():
        z = features[labels == c]
        n = len(z)
        if n < 2:
            continue
        variance = ((z - z.mean(0)) ** 2).sum(0) / (n if scale == "paper" else n - 1)
        zh = (z - z.mean(0)) / (variance + 1e-8).sqrt()
        m = torch.zeros(d, d, dtype=torch.float64)
        for row in zh:
            m += torch.outer(row, row)
        if scale == "paper":
            terms.append(((m / (n - 1)) ** 2).sum().item())
        else:
            off = [m[a, b].item() ** 2 for a in range(d) for b in range(d) if a != b]
            terms.append(sum(off) / (d * (d - 1)) if off else 0.0)
            samples += n
    if not terms:
        return 0.0
    return sum(terms) / (len(terms) if scale == "paper" else samples)


def loop_inter(
    features: Tensor, labels: Tensor, prototypes: Tensor, available: Tensor, negatives: Tensor, margin: bool
) -> float:
    pairs = []
    for i in labels.unique().tolist():
        if not available[i]:
            continue
        for j in range(len(prototypes)):
            if j == i or not (available[j] and negatives[j]):
                continue
            values = []
            for z in features[labels == i]:
                own, other = (z - prototypes[i]).norm().item(), (z - prototypes[j]).norm().item()
                values.append(max(own - other, 0.0) if margin else own)
            pairs.append(sum(values) / len(values))
    return sum(pairs) / len(pairs) if pairs else 0.0


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    size, d, classes = draw(st.integers(1, 12)), draw(st.integers(1, 7)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    features = torch.randn(size, d, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (size,), generator=generator)
    prototypes = torch.randn(classes, d, generator=generator, dtype=torch.float64)
    available, negatives = (torch.rand(classes, generator=generator) < 0.7 for _ in range(2))
    return features, labels, prototypes, available, negatives


@given(batches(), st.sampled_from(SCALES))
@settings(max_examples=150, deadline=None)
def test_intra_equals_a_loop_over_classes(batch: tuple[Tensor, ...], scale: str) -> None:
    features, labels, *_ = batch
    assert intra_class_loss(features, labels, scale=scale).item() == pytest.approx(
        loop_intra(features, labels, scale), rel=1e-9, abs=1e-9
    )


@given(batches(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_inter_equals_a_loop_over_pairs_and_samples(batch: tuple[Tensor, ...], margin: bool) -> None:
    features, labels, prototypes, available, negatives = batch
    loss = inter_class_loss(features, labels, prototypes, available=available, negatives=negatives, margin=margin)
    expected = loop_inter(features, labels, prototypes, available, negatives, margin)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_inter_uses_all_classes_by_default() -> None:
    features, labels = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 2, 2])
    prototypes = torch.randn(4, 3, dtype=torch.float64)
    everything = torch.ones(4, dtype=torch.bool)
    expected = loop_inter(features, labels, prototypes, everything, everything, margin=True)
    assert inter_class_loss(features, labels, prototypes).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_gradients_of_intra(scale: str) -> None:
    features = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    assert torch.autograd.gradcheck(lambda z: intra_class_loss(z, labels, scale=scale), features)


@pytest.mark.parametrize("margin", [True, False])
def test_gradients_of_inter(margin: bool) -> None:
    features = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    labels, prototypes = torch.tensor([0, 0, 0, 1, 1, 2, 2]), torch.randn(3, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: inter_class_loss(z, labels, prototypes, margin=margin), features)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("labels", [[0], [0, 1, 2, 3]], ids=["one sample", "every class once"])
def test_intra_is_a_connected_zero_without_a_pair(labels: list[int], scale: str) -> None:
    features = torch.randn(len(labels), 5, requires_grad=True)
    loss = intra_class_loss(features, torch.tensor(labels), scale=scale)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(features.grad, torch.zeros_like(features))


@pytest.mark.parametrize("scale", SCALES)
def test_intra_with_one_class_and_constant_dimensions_is_finite(scale: str) -> None:
    features = torch.randn(6, 5)
    features[:, 2] = 3.0
    features.requires_grad_()
    loss = intra_class_loss(features, torch.zeros(6, dtype=torch.int64), scale=scale)
    loss.backward()
    assert loss > 0
    assert features.grad.isfinite().all()


def test_intra_of_identical_samples_is_zero() -> None:
    features = torch.ones(4, 3, requires_grad=True)
    loss = intra_class_loss(features, torch.tensor([0, 0, 1, 1]))
    loss.backward()
    assert loss.item() == 0
    assert features.grad.isfinite().all()


def test_inter_gradient_is_finite_on_the_own_prototype() -> None:
    prototypes = torch.randn(3, 4)
    features = prototypes[[0, 1]].clone().requires_grad_()
    loss = inter_class_loss(features, torch.tensor([0, 1]), prototypes)
    loss.backward()
    assert loss.item() == 0
    assert features.grad.isfinite().all()


def test_inter_gradient_is_finite_on_anothers_prototype() -> None:
    prototypes = torch.randn(2, 4)
    features = prototypes[[1]].clone().requires_grad_()
    loss = inter_class_loss(features, torch.tensor([0]), prototypes)
    loss.backward()
    assert loss > 0
    assert features.grad.isfinite().all()


def test_inter_is_a_connected_zero_without_prototypes() -> None:
    features = torch.randn(4, 3, requires_grad=True)
    missing = torch.full((2, 3), torch.nan)  # what stands in the rows of missing prototypes must not matter
    loss = inter_class_loss(features, torch.tensor([0, 0, 1, 1]), missing, available=torch.zeros(2, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(features.grad, torch.zeros_like(features))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    # Off-centre features whose squared Gram matrix overflows float16.
    features = (torch.randn(64, 512) * 30).to(dtype).requires_grad_()
    labels, prototypes = torch.arange(64) % 2, torch.randn(2, 512)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = [intra_class_loss(features, labels, scale=scale) for scale in SCALES]
        losses.append(inter_class_loss(features, labels, prototypes))
        losses.append(anchor_loss(features, labels, prototypes))
        losses.append(replay_loss(features, labels))
    exact = [intra_class_loss(features.double(), labels, scale=scale) for scale in SCALES]
    exact.append(inter_class_loss(features.double(), labels, prototypes.double()))
    exact.append(anchor_loss(features.double(), labels, prototypes.double()))
    exact.append(replay_loss(features.double(), labels))
    for loss, reference in zip(losses, exact, strict=True):
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(reference.item(), rel=1e-4)
    sum(losses).backward()
    assert features.grad.isfinite().all()


def test_lite_uses_the_samples_its_generator_draws() -> None:
    features, labels = torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 3
    prototypes = torch.randn(3, 4, dtype=torch.float64)
    chosen = torch.randperm(20, generator=torch.Generator().manual_seed(5))[:6]
    lite = inter_class_loss(features, labels, prototypes, lite=6, generator=torch.Generator().manual_seed(5))
    assert lite.item() == inter_class_loss(features[chosen], labels[chosen], prototypes).item()
    other = inter_class_loss(features, labels, prototypes, lite=6, generator=torch.Generator().manual_seed(6))
    assert lite.item() != other.item()


def test_lite_of_all_samples_is_the_whole_loss_and_of_none_a_connected_zero() -> None:
    features, labels = torch.randn(8, 4, dtype=torch.float64, requires_grad=True), torch.arange(8) % 2
    prototypes = torch.randn(2, 4, dtype=torch.float64)
    whole = inter_class_loss(features, labels, prototypes)
    assert inter_class_loss(features, labels, prototypes, lite=128).item() == pytest.approx(whole.item(), rel=1e-12)
    none = inter_class_loss(features, labels, prototypes, lite=0)
    none.backward()
    assert none.item() == 0
    assert torch.equal(features.grad, torch.zeros_like(features))


@pytest.mark.parametrize(
    "arguments",
    [
        {"features": torch.zeros(3), "labels": torch.zeros(3, dtype=torch.int64)},
        {"features": torch.zeros(3, 2), "labels": torch.zeros(2, dtype=torch.int64)},
        {"prototypes": torch.zeros(2, 5)},
        {"available": torch.ones(3, dtype=torch.bool)},
        {"negatives": torch.ones(2)},
        {"lite": -1},
    ],
)
def test_inter_refuses_what_does_not_fit(arguments: dict[str, object]) -> None:
    fitting = {
        "features": torch.zeros(3, 2),
        "labels": torch.zeros(3, dtype=torch.int64),
        "prototypes": torch.zeros(2, 2),
    }
    with pytest.raises(ValueError, match="must"):
        inter_class_loss(**(fitting | arguments))


def test_intra_refuses_an_unknown_scale() -> None:
    with pytest.raises(ValueError, match="scale"):
        intra_class_loss(torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64), scale="printed")


@pytest.mark.parametrize(("correction", "holds"), [(1, True), (0, False)])
def test_lemma_1_of_the_paper_holds_if_both_divide_by_the_same_n(correction: int, holds: bool) -> None:
    z = torch.randn(50, 6, dtype=torch.float64)
    standardised = (z - z.mean(0)) / z.std(0, correction=correction)
    m = standardised.T @ standardised / (len(z) - 1)
    eigenvalues = torch.linalg.eigvalsh(m)
    found = ((eigenvalues - 1) ** 2).sum().item()
    assert (found == pytest.approx((m**2).sum().item() - 6, rel=1e-9)) == holds
