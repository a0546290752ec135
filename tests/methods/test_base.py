"""The registry, FedAvg's invariants, and what holds for every method alike."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.utils import fobs
from torch.nn import functional as F

from fedmr_med import methods
from fedmr_med.config import MethodConfig
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.models.job_network import build_network
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.codec import encode_reply
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import SiteReply
from tests.helpers import containers as wire
from tests.helpers.benchmarks import tiny_job
from tests.helpers.errors import raises
from tests.helpers.methods import (
    CLASSES,
    NAMES,
    Federation,
    Tiny,
    WithBatchNorm,
    epochs,
    job,
    local_round,
    same_model,
)
from tests.helpers.reference import momentum_steps


def test_the_eight_methods_in_the_order_of_the_paper_come_first() -> None:
    assert methods.available() == NAMES == (*methods.PAPER_METHODS, "scaffold")


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        ("fedsgd", {}, ("config.unknown-name", "method.name")),
        ("fedprox", {"lambda": 1}, ("config.unknown-key", "method.options.lambda")),
        ("fedprox", {"mu": -1}, ("config.greater-than-equal", "method.options.mu")),
        ("feddyn", {"clip": 0}, ("config.greater-than", "method.options.clip")),
        ("moon", {"reshaping": {"mu3": 1}}, ("config.unknown-key", "method.options.reshaping.mu3")),
        ("fedmr", {"reshaping": {}}, ("config.unknown-key", "method.options.reshaping")),
    ],
)
def test_unknown_names_and_options_are_refused(name: str, options: dict, fault: tuple[str, ...]) -> None:
    with raises(*fault):
        methods.build(MethodConfig(name=name, options=options))


@given(st.integers(1, 60), st.floats(0, 0.99))
def test_effective_steps_add_up_the_reach_of_every_gradient(steps: int, momentum: float) -> None:
    assert local_round(steps, momentum).effective_steps == pytest.approx(momentum_steps(steps, momentum), rel=1e-6)


def test_effective_steps_without_momentum_are_the_steps() -> None:
    assert local_round(7, 0.0).effective_steps == 7


ZEROS = [
    ("fedprox", {"mu": 0}),
    ("fedproc", {"mu": 0}),
    ("moon", {"mu": 0}),
    ("fedmr", {"variant": "paper", "mu1": 0, "mu2": 0}),
    ("fedmr", {"variant": "paper", "mu1": 0, "mu2": 0, "lite": 2, "scale": "paper"}),
    ("fedavg", {"reshaping": {"mu1": 0, "mu2": 0}}),
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> GlobalState:
    return three_rounds("fedavg", {}, tmp_path_factory.mktemp("fedavg")).state


def three_rounds(name: str, options: dict, folder: Path) -> Federation:
    federation = Federation(job(name, **options), folder, WithBatchNorm)
    for present in ("abc", "ac", "abc"):
        federation.round(present)
    return federation


@pytest.mark.parametrize(("name", "options"), ZEROS)
def test_coefficient_zero_is_fedavg_bit_for_bit(tmp_path: Path, plain: GlobalState, name: str, options: dict) -> None:
    federation = three_rounds(name, options, tmp_path)
    assert same_model(federation.state, plain)
    assert federation.state.prototypes.available.any() == (name == "fedproc"), "a loss of weight 0 needs none"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "fedmr"])
def test_every_baseline_takes_the_prototypes_of_fedmr(tmp_path: Path, name: str) -> None:
    alone = three_rounds(name, {}, tmp_path / "alone")
    added = three_rounds(name, {"reshaping": {"mu1": 0.1, "mu2": 0.1}}, tmp_path / "added")
    assert added.state.prototypes.available.tolist() == [True] * 4 + [False]
    assert not same_model(alone.state, added.state)
    terms = added.state.history.rounds[-1].sites["a"].terms
    assert {"classification", "intra", "inter"} <= terms.keys()
    neutral = three_rounds(name, {"reshaping": {"mu1": 0, "mu2": 0}}, tmp_path / "neutral")
    assert same_model(alone.state, neutral.state)


def test_fedavg_with_reshaping_is_fedmr(tmp_path: Path) -> None:
    coefficients = {"variant": "paper", "mu1": 0.1, "mu2": 0.1}
    fedmr = three_rounds("fedmr", coefficients, tmp_path / "fedmr")
    fedavg = three_rounds("fedavg", {"reshaping": coefficients}, tmp_path / "fedavg")
    assert same_model(fedmr.state, fedavg.state)


@pytest.mark.parametrize("name", NAMES)
def test_prototypes_are_asked_for_only_where_they_are_used(name: str) -> None:
    def uses(**options: object) -> bool:
        return methods.build(MethodConfig(name=name, options=options)).uses_prototypes

    assert uses() == (name in ("fedproc", "fedmr"))
    if name != "fedmr":
        assert uses(reshaping={})
        assert uses(reshaping={"terms": "intra"}) == (name == "fedproc")
        assert uses(reshaping={"prototypes": "one_hot"}) == (name == "fedproc")


def test_one_client_with_everything_is_plain_training(tmp_path: Path) -> None:
    config = job("fedavg")
    federation = Federation(config, tmp_path, holdings={"all": ((0, 1, 2, 3, 4), 30)})
    torch.manual_seed(7)
    network = Tiny()
    for number in range(3):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        for x, y in epochs(federation.sites["all"], number):
            optimizer.zero_grad()
            F.cross_entropy(network(torch.from_numpy(x))[1], torch.from_numpy(y)).backward()
            optimizer.step()
        federation.round()
        for name, value in network.state_dict().items():
            np.testing.assert_allclose(federation.state.model[name], value.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_arrival_changes_nothing(tmp_path: Path, name: str) -> None:
    federation = Federation(job(name), tmp_path, WithBatchNorm)
    federation.round()
    replies = {site: hospital.train(federation.task()) for site, hospital in federation.sites.items()}
    results = []
    for order in itertools.permutations(replies):
        collector = TrainExchange(federation.job, federation.state, num_sites=3)
        for site in order:
            collector.offer(site, encode_reply(TRAIN, replies[site]))
        results.append(collector.close())
    for state in results[1:]:
        assert same_model(state, results[0])
        assert state.method.keys() == results[0].method.keys()
        assert all(np.array_equal(state.method[key], results[0].method[key]) for key in state.method)


@pytest.mark.parametrize("name", NAMES)
def test_tasks_and_replies_survive_the_wire(tmp_path: Path, name: str) -> None:
    common_decomposers.register()
    federation = Federation(job(name), tmp_path, WithBatchNorm)
    federation.round()
    task = wire.decode_task(fobs.loads(fobs.dumps(wire.encode_task(federation.task()))))
    direct, through = federation.sites["b"].train(federation.task()), federation.sites["b"].train(task)
    sent = fobs.loads(fobs.dumps(wire.encode_reply(through)))
    received = wire.decode_reply(sent, "b", num_classes=CLASSES, feature_size=8)
    assert_same_reply(received, direct)
    federation.close([received])


def assert_same_reply(a: SiteReply, b: SiteReply) -> None:
    for first, second in ((a.model, b.model), (a.payload, b.payload)):
        assert first.keys() == second.keys()
        for key, array in first.items():
            assert array.dtype == second[key].dtype
            np.testing.assert_array_equal(array, second[key])


@pytest.mark.parametrize("name", NAMES)
def test_mixed_precision_trains_finite_weights(tmp_path: Path, name: str) -> None:
    federation = Federation(job(name, train={"epochs": 2, "precision": "bfloat16"}), tmp_path, WithBatchNorm)
    for _ in range(2):
        federation.round()
    assert all(np.isfinite(array).all() for array in federation.state.model.values())


def test_one_hot_prototypes_need_a_dimension_for_every_class() -> None:
    short = {"model.options": {"feature_size": 8}}
    for options in ({"fedmr.variant": "paper", "prototypes": "one_hot"}, {"reshaping": {"prototypes": "one_hot"}}):
        name = "fedmr" if "prototypes" in options else "fedavg"
        with raises("config.too-few-features", "method.options.prototypes"):
            build_network(tiny_job(name, changes=options | short))
        build_network(tiny_job(name, changes=options))


@pytest.mark.parametrize("name", NAMES)
def test_float16_on_the_wire_is_refused_where_rounding_would_add_up(name: str) -> None:
    config = tiny_job(name, changes={"federation.wire": "float16"})
    if name in ("feddyn", "feddc", "scaffold"):
        with raises("config.conflict", "federation.wire"):
            build_network(config)
    else:
        build_network(config)


@pytest.mark.parametrize("name", ["fednova", "feddc", "scaffold"])
def test_a_reply_without_its_payload_is_refused_whole(tmp_path: Path, name: str) -> None:
    federation = Federation(job(name), tmp_path)
    reply = federation.sites["a"].train(federation.task())
    with raises("wire.form", "payload"):
        federation.close([replace(reply, payload={})])
    assert federation.state.round == 0
