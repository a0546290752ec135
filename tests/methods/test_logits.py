"""Classifiers that know which classes are missing at a site."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedmr_med import methods
from fedmr_med.config import LossConfig, MethodConfig
from fedmr_med.methods.etf import EtfNetwork, simplex
from fedmr_med.methods.local import Batch
from fedmr_med.methods.logits import LogitsOptions, MissingClasses
from fedmr_med.models.job_network import build_network
from fedmr_med.server.state import GlobalState
from fedmr_med.site import criterion
from tests.helpers.benchmarks import tiny_job
from tests.helpers.errors import raises
from tests.helpers.methods import CLASSES, NAMES, Federation, Tiny, WithBatchNorm, job, local_round, same_model

COUNTS = torch.tensor([6, 3, 0, 1, 0])
SHARE = (COUNTS / 10).numpy().astype(np.float64)


def missing(counts: torch.Tensor = COUNTS, **options: object) -> MissingClasses:
    return MissingClasses(LogitsOptions(**options), replace(local_round(1, 0.0), counts=counts))


def batch_of(network: Tiny, labels: tuple[int, ...] = (0, 0, 1, 3)) -> Batch:
    images = torch.randn(len(labels), 1, 3, 3, generator=torch.Generator().manual_seed(1))
    features, logits = network(images)
    return Batch(images, torch.tensor(labels), features, logits, logits.sum() * 0)


def softmax(values: np.ndarray) -> np.ndarray:
    raised = np.exp(values - values.max())
    return raised / raised.sum()


def test_restricted_shrinks_the_logits_of_missing_classes() -> None:
    seen = missing(kind="restricted", alpha=0.5).seen(torch.full((2, CLASSES), 4.0))
    assert seen.tolist() == [[4, 4, 2, 4, 2]] * 2


def test_restricted_as_released_follows_the_counts_of_all_classes() -> None:
    seen = missing(kind="restricted", alpha=0.5, restriction="released").seen(torch.full((1, CLASSES), 4.0))
    # The first step of the authors' code, with counts 6 3 0 1 0: 0.5 + 0.5 n / 6.
    assert torch.allclose(seen, torch.tensor([[4, 3, 2, 7 / 3, 2]]))


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean cross-entropy of logits (B, C), some of which may be minus infinity."""
    terms = np.exp(logits - logits.max(1, keepdims=True))
    return float(-np.log(terms[range(len(labels)), labels] / terms.sum(1)).mean())


LABELS = torch.tensor([0, 1, 3, 0])
REFERENCES = {
    "Menon et al., with the logarithm of the share": (
        {"kind": "adjusted", "tau": 0.7},
        [0.7 * np.log(0.6), 0.7 * np.log(0.3), -np.inf, 0.7 * np.log(0.1), -np.inf],
    ),
    "FedETF's balanced softmax, with at least one image of each class": (
        {"kind": "adjusted", "vacant": "one"},
        [np.log(6), np.log(3), 0.0, 0.0, 0.0],
    ),
    "FedLC, with the fourth root of the counts": (
        {"kind": "calibrated", "tau": 0.7},
        [-0.7 / 6**0.25, -0.7 / 3**0.25, -np.inf, -0.7, -np.inf],
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_offsets_are_those_of_the_papers(name: str) -> None:
    options, offsets = REFERENCES[name]
    logits = torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(0))
    expected = cross_entropy(logits.double().numpy() + np.array(offsets), LABELS.numpy())
    assert F.cross_entropy(missing(**options).seen(logits), LABELS).item() == pytest.approx(expected, rel=1e-5)


def test_logit_adjustment_and_fedlc_are_two_methods() -> None:
    gradients = []
    for kind in ("adjusted", "calibrated"):
        logits = torch.zeros(4, CLASSES, requires_grad=True)
        F.cross_entropy(missing(kind=kind).seen(logits), LABELS).backward()
        gradients.append(logits.grad)
    assert (gradients[0] - gradients[1]).norm() > 0.2 * gradients[0].norm()


def test_scaled_follows_the_shares() -> None:
    seen = missing(kind="scaled").seen(torch.ones(1, CLASSES))
    assert torch.allclose(seen, torch.tensor([[3, 1.5, 0, 0.5, 0]]))


def test_the_class_of_a_single_image_has_the_whole_share() -> None:
    seen = missing(torch.tensor([0, 1, 0, 0, 0]), kind="scaled").seen(torch.ones(1, CLASSES))
    assert seen.tolist() == [[0, CLASSES, 0, 0, 0]]


@pytest.mark.parametrize("loss", ["cross_entropy", "focal"])
def test_adjusted_leaves_missing_classes_out(loss: str) -> None:
    logits = torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([0, 1, 3, 0])
    value = criterion.build(LossConfig(name=loss), COUNTS.numpy())(missing(kind="adjusted").seen(logits), labels)
    value.backward()
    assert torch.isfinite(value)
    assert torch.equal(logits.grad[:, [2, 4]], torch.zeros(4, 2))
    if loss == "cross_entropy":
        weighted = np.exp(logits.detach().double().numpy()) * SHARE
        expected = -np.log(weighted[range(4), labels] / weighted.sum(1)).mean()
        assert value.item() == pytest.approx(expected, rel=1e-5)


def test_lmd_teaches_what_the_received_model_says_of_missing_classes() -> None:
    local = replace(local_round(1, 0.0), counts=COUNTS)
    part = MissingClasses(LogitsOptions(kind="lmd", beta=2.0, temperature=3.0), local)
    taught = local.network(batch_of(local.network).images)[1].detach().numpy()
    with torch.no_grad():
        local.network.classifier.weight += 1.0
        local.network.classifier.bias[2] += 0.5
    batch = batch_of(local.network)
    expected = 0.0
    for row, label in enumerate(batch.labels.tolist()):
        teacher = softmax(taught[row, [2, 4]] / 3)
        others = [c for c in range(CLASSES) if c != label]
        student = softmax(batch.logits[row, others].detach().numpy() / 3)
        student = student[[others.index(2), others.index(4)]]
        expected += (teacher * np.log(teacher / student)).sum() / 4
    assert part.terms(batch)["distillation"].item() == pytest.approx(2 * 9 * expected)


def test_lmd_without_a_teacher_is_uniform_over_missing_classes() -> None:
    local = replace(local_round(1, 0.0), counts=COUNTS)
    part = MissingClasses(LogitsOptions(kind="lmd", teacher="uniform"), local)
    assert part.received is None
    batch = batch_of(local.network)
    others = batch.logits.masked_fill(F.one_hot(batch.labels, CLASSES).bool(), -torch.inf).log_softmax(1)
    expected = (0.5 * (np.log(0.5) - others[:, [2, 4]])).sum(1).mean()
    assert part.terms(batch)["distillation"].item() == pytest.approx(expected.item())


def test_vls_distils_missing_classes_and_suppresses_held_ones() -> None:
    local = replace(local_round(1, 0.0), counts=COUNTS)
    part = MissingClasses(LogitsOptions(kind="vls", distil=0.1, suppress=0.005), local)
    taught = local.network(batch_of(local.network).images)[1].detach().numpy()
    with torch.no_grad():
        local.network.classifier.bias[2] += 0.5
    batch = batch_of(local.network)
    z, labels = batch.logits.detach().numpy(), batch.labels.numpy()
    teacher, student = (np.stack([softmax(row[[2, 4]]) for row in logits]) for logits in (taught, z))
    level = sum(SHARE[c] * np.log((np.exp(z[:, c]) * (labels != c)).mean()) for c in (0, 1, 3))
    terms = part.terms(batch)
    assert terms["distillation"].item() == pytest.approx(0.1 * (teacher * np.log(teacher / student)).sum(1).mean())
    assert terms["suppression"].item() == pytest.approx(0.005 * level, rel=1e-5)


def test_a_batch_of_one_class_and_a_site_with_all_classes_give_finite_terms() -> None:
    for kind in ("lmd", "vls"):
        part = missing(torch.full((CLASSES,), 2), kind=kind)
        network = local_round(1, 0.0).network
        terms = part.terms(batch_of(network, (1, 1, 1)))
        sum(terms.values()).backward()
        assert terms["distillation"].item() == 0
        assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> GlobalState:
    return two_rounds({}, tmp_path_factory.mktemp("all"), EVERYTHING)


EVERYTHING = {"a": (range(CLASSES), 10), "b": (range(CLASSES), 20)}


def two_rounds(options: dict, folder: Path, holdings: dict | None = None, name: str = "fedavg") -> GlobalState:
    federation = Federation(job(name, **options), folder, WithBatchNorm, holdings)
    for _ in range(2):
        federation.round()
    return federation.state


NEUTRAL = [
    {"kind": "restricted", "alpha": 1},
    {"kind": "restricted", "alpha": 1, "restriction": "released"},
    {"kind": "adjusted", "tau": 0},
    {"kind": "adjusted", "tau": 0, "vacant": "one"},
    {"kind": "calibrated", "tau": 0},
    {"kind": "lmd", "beta": 0},
    {"kind": "lmd", "beta": 0, "teacher": "uniform"},
    {"kind": "vls", "tau": 0, "distil": 0, "suppress": 0},
]


@pytest.mark.parametrize("logits", NEUTRAL)
def test_neutral_coefficients_are_fedavg_bit_for_bit(logits: dict, tmp_path: Path) -> None:
    plain = two_rounds({}, tmp_path / "plain")
    assert same_model(two_rounds({"logits": logits}, tmp_path / "neutral"), plain)


@pytest.mark.parametrize("kind", ["restricted", "lmd", "scaled"])
def test_where_no_class_is_missing_it_is_fedavg_bit_for_bit(kind: str, everything: GlobalState, tmp_path: Path) -> None:
    assert same_model(two_rounds({"logits": {"kind": kind}}, tmp_path, EVERYTHING), everything)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_method_takes_them(name: str, tmp_path: Path) -> None:
    plain = two_rounds({}, tmp_path / "plain", name=name)
    for kind in ("restricted", "vls"):
        changed = two_rounds({"logits": {"kind": kind}}, tmp_path / kind, name=name)
        assert not same_model(plain, changed)
        assert all(np.isfinite(array).all() for array in changed.model.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_method_takes_the_fixed_classifier(name: str, tmp_path: Path) -> None:
    state = two_rounds({"classifier": "etf", "logits": {"kind": "adjusted"}}, tmp_path, name=name)
    assert [key for key in state.model if key.startswith("classifier")] == ["classifier.scale"]
    assert all(np.isfinite(array).all() for array in state.model.values())


def test_the_simplex_has_equal_angles() -> None:
    vertices = simplex(5, 8, seed=3)
    cosines = vertices @ vertices.T
    assert torch.allclose(cosines, torch.eye(5).double() * 1.25 - 0.25, atol=1e-12)
    assert not torch.allclose(vertices, simplex(5, 8, seed=4))


def test_the_fixed_classifier_follows_from_the_seed_and_never_travels() -> None:
    options = {"classifier": "etf"}
    networks = [
        build_network(tiny_job("fedavg", changes=options, seed=seed), pretrained=pretrained)
        for seed, pretrained in ((0, True), (0, False), (1, False))
    ]
    assert all(isinstance(network, EtfNetwork) for network in networks)
    server, site, other = (network.classifier.directions for network in networks)
    assert torch.equal(server, site)
    assert not torch.equal(site, other)
    assert not any("directions" in name for name in networks[0].state_dict())


def test_more_classes_than_features_are_refused() -> None:
    with raises("config.too-few-features", "method.options.classifier"):
        build_network(tiny_job("fedavg", changes={"classifier": "etf", "model.options": {"feature_size": 8}}))


def test_an_unknown_kind_is_refused() -> None:
    with raises("config.literal-error", "method.options.logits.kind"):
        methods.build(MethodConfig(name="moon", options={"logits": {"kind": "cosine"}}))
