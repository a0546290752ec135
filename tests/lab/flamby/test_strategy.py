"""FedMR as a FLamby strategy: FLamby's arithmetic, this package's losses and prototypes."""

import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedmr_med.lab.flamby import FedMR
from fedmr_med.prototypes import ClassSums
from tests.helpers.errors import raises
from tests.helpers.flamby_clients import CLASSES, FEATURES, loaders, model


def run(strategy: Any, batch_size: int = 8, **options: Any) -> tuple[Any, list[nn.Module]]:
    """Run a strategy as FLamby's benchmark does: seed, build, seed, run."""
    arguments = {"optimizer_class": torch.optim.SGD, "learning_rate": 0.05, "num_updates": 5, "nrounds": 3} | options
    data = arguments.pop("training_dataloaders", None) or loaders(batch_size)
    network = arguments.pop("model", None) or model()
    loss = arguments.pop("loss", None) or nn.CrossEntropyLoss()
    torch.manual_seed(0)
    instance = strategy(training_dataloaders=data, model=network, loss=loss, **arguments)
    torch.manual_seed(0)
    return instance, instance.run()


def head(**options: Any) -> torch.Tensor:
    """Return the classifier's weights of the first client after a run."""
    return run(FedMR, **options)[1][0].state_dict()["head.weight"]


def momentum_sgd(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr, momentum=0.9)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, momentum_sgd])
def test_without_coefficients_it_is_flambys_fedavg(flamby_strategies: ModuleType, optimizer: Any) -> None:
    _, theirs = run(flamby_strategies.FedAvg, optimizer_class=optimizer)
    _, ours = run(FedMR, optimizer_class=optimizer, mu1=0.0, mu2=0.0)
    for our, their in zip(ours, theirs, strict=True):
        for (name, a), b in zip(our.state_dict().items(), their.state_dict().values(), strict=True):
            assert torch.equal(a, b), name


def test_each_coefficient_changes_the_result() -> None:
    neither, *others = (head(mu1=mu1, mu2=mu2) for mu1, mu2 in ((0, 0), (0.5, 0), (0, 0.5)))
    assert not any(torch.allclose(neither, other) for other in others)


def test_clients_end_with_equal_parameters_and_their_own_buffers() -> None:
    _, models = run(FedMR)
    first, *others = [dict(m.named_parameters()) for m in models]
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)
    means = [m.state_dict()["body.1.running_mean"] for m in models]
    assert not torch.allclose(means[0], means[1])


def test_prototypes_are_the_mean_features_of_those_who_share() -> None:
    share = [False, True, True]
    # Learning rate 0: the features of the returned models are those that the prototypes were made of.
    strategy, models = run(FedMR, learning_rate=0.0, nrounds=1, share=share)
    expected = ClassSums.zeros(CLASSES, FEATURES)
    for network, loader, shares in zip(models, loaders(), share, strict=True):
        inputs, labels = loader.dataset.tensors  # type: ignore[attr-defined]
        features = network.eval().body(inputs)  # type: ignore[operator]
        expected = expected + ClassSums.from_features(features, labels, CLASSES) if shares else expected
    means = expected.sums / expected.counts.clamp(min=1)[:, None]
    assert torch.allclose(strategy.prototypes.means.double(), means, atol=1e-6)
    assert strategy.prototypes.available.tolist() == [True, True, True, False]


def test_a_client_that_opts_out_still_trains_with_the_prototypes_of_the_others() -> None:
    assert not torch.allclose(*(head(mu1=0, mu2=mu2, share=[False, True, True], nrounds=2) for mu2 in (0, 1.0)))


def test_nobody_shares_so_the_inter_class_loss_is_off() -> None:
    assert torch.equal(*(head(mu1=0, mu2=mu2, share=[False] * 3) for mu2 in (0.0, 1.0)))


def test_the_prototype_pass_leaves_the_global_generators_alone() -> None:
    strategy = FedMR(loaders(), model(), nn.CrossEntropyLoss(), torch.optim.SGD, 0.05, num_updates=1, nrounds=1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    strategy._class_sums(0)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_what_is_sent_is_counted_with_the_prototypes() -> None:
    sent: list[int] = []

    def count(arrays: list[Any]) -> int:
        sent.append(sum(array.nbytes for array in arrays))
        return sent[-1]

    run(FedMR, nrounds=1, share=[True, False, True], bits_counting_function=count)
    assert sent[0] - sent[1] == 4 * (CLASSES * FEATURES + CLASSES)
    assert sent[0] == sent[2]


def test_heart_disease_works_through_the_same_class(flamby_strategies: ModuleType) -> None:
    """Labels are (B, 1) floats. FLamby's tabular model is one linear layer, so FedMR's losses need a hidden one."""
    from flamby.datasets.fed_heart_disease.loss import BaselineLoss
    from flamby.datasets.fed_heart_disease.model import Baseline

    def heart() -> list[DataLoader[Any]]:
        generator = torch.Generator().manual_seed(0)
        labels = [torch.randint(2, (size, 1), generator=generator).float() for size in (20, 14, 9, 12)]
        inputs = [torch.randn(len(y), 13, generator=generator) + y for y in labels]
        return [
            DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True) for x, y in zip(inputs, labels, strict=True)
        ]

    torch.manual_seed(0)
    options = {"model": Baseline(), "loss": BaselineLoss()}
    _, ours = run(FedMR, training_dataloaders=heart(), mu1=0.0, mu2=0.0, **options)
    _, theirs = run(flamby_strategies.FedAvg, training_dataloaders=heart(), **options)
    assert torch.equal(ours[0].linear.weight, theirs[0].linear.weight)
    with raises("model.raw-features"):
        run(FedMR, training_dataloaders=heart(), mu1=0.1, mu2=0.1, **options)
    hidden = nn.Sequential(nn.Linear(13, 8), nn.ReLU(), Baseline(8))
    strategy, _ = run(FedMR, training_dataloaders=heart(), mu1=0.1, mu2=0.1, model=hidden, loss=BaselineLoss())
    assert strategy.num_classes == 2
    assert strategy.prototypes.available.all()


@pytest.mark.parametrize(("option", "value"), [("replay", 0.0), ("mu2", 0.0), ("inertia", 0.0)])
def test_the_default_preset_has_anchor_replay_and_slow_prototypes(option: str, value: float) -> None:
    """Client 2 lacks classes 2 and 3, so there is something to replay."""
    assert not torch.allclose(*(head(variant="replayed", reshaping=changes) for changes in (None, {option: value})))


def test_the_default_preset_moves_with_momentum() -> None:
    """Without its losses it is FedAvg with server momentum .5: the second round moves by half of the first, too."""
    off = {"mu2": 0.0, "reshaping": {"replay": 0.0}}
    start = model().state_dict()["head.weight"]
    plain, fast = (
        [head(variant=variant, nrounds=rounds, num_updates=1, mu1=0.0, **off) for rounds in (1, 2)]
        for variant in ("paper", "replayed")
    )
    assert torch.equal(plain[0], fast[0])
    assert torch.allclose(fast[1] - plain[1], 0.5 * (plain[0] - start), atol=1e-7)


def test_a_client_that_opts_out_keeps_prototypes_of_its_own() -> None:
    strategy, _ = run(FedMR, variant="replayed", share=[False, True, True])
    assert strategy.prototypes.available.tolist() == [True, True, True, False]
    assert strategy._own[0].available.tolist() == [True] * 4, "class 3 is client 0's alone"
    assert not strategy._own[1].available.any()


def test_a_model_with_one_output_learns_the_class_it_lacks_from_replay() -> None:
    """One client has class 1 alone; the other's prototype of class 0 keeps its classifier from saying 1 to all."""
    generator = torch.Generator().manual_seed(0)
    labels = [torch.ones(40, 1), torch.randint(2, (8, 1), generator=generator).float()]
    data = [TensorDataset(torch.randn(len(y), 5, generator=generator) + 2 * y, y) for y in labels]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
    sure = []
    for replay in (0.0, 30.0):
        loaders = [DataLoader(part, batch_size=8, shuffle=True) for part in data]
        options = {"model": network, "loss": nn.BCELoss(), "reshaping": {"replay": replay}, "nrounds": 10}
        _, models = run(FedMR, training_dataloaders=loaders, variant="replayed", **options)
        sure.append(models[0](data[1].tensors[0])[data[1].tensors[1] == 0].mean().item())
    assert sure[1] < sure[0] - 0.05


def test_a_hidden_layer_makes_a_linear_model_fit_and_is_the_same_for_all() -> None:
    linear = nn.Sequential(nn.Linear(5, CLASSES))
    with raises("model.raw-features"):
        run(FedMR, model=linear)
    strategy, models = run(FedMR, model=linear, hidden=16)
    assert strategy.prototypes.means.shape == (CLASSES, 16)
    again, _ = run(FedMR, model=linear, hidden=16)
    assert torch.equal(strategy.prototypes.means, again.prototypes.means)
    assert [tuple(p.shape) for p in models[0].parameters()] == [(16, 5), (16,), (CLASSES, 16), (CLASSES,)]
    with raises("model.last-layer", "hidden"):
        run(FedMR, model=nn.Linear(5, CLASSES), hidden=16)


def test_a_model_without_a_linear_layer_is_refused() -> None:
    with raises("model.no-classifier"):
        FedMR(loaders(), nn.Conv1d(1, 1, 1), nn.CrossEntropyLoss(), torch.optim.SGD, 0.1, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"share": [True]}, ("config.value", "share")),
        ({"dp_target_epsilon": 1.0}, ("config.conflict", "dp")),
        ({"prototype_dataloaders": []}, ("config.value", "prototype_dataloaders")),
        ({"variant": "printed"}, ("config.literal-error", "variant")),
        ({"reshaping": {"mu3": 1.0}}, ("config.unknown-key", "mu3")),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], fault: tuple[str, ...]) -> None:
    with raises(*fault):
        FedMR(loaders(), model(), nn.CrossEntropyLoss(), torch.optim.SGD, 0.1, 1, 1, **arguments)


def test_several_labels_per_sample_are_refused() -> None:
    data = [DataLoader(TensorDataset(torch.randn(4, 5), torch.zeros(4, 3)), batch_size=2)]
    with raises("data.item", "labels"):
        run(FedMR, training_dataloaders=data, loss=lambda output, labels: output.sum())
