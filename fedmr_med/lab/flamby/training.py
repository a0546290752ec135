"""Three ways to train under FLamby's protocol: through the executor, by a strategy of FLamby, without a federation."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedmr_med import models
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, class_counts
from fedmr_med.errors import ConfigError
from fedmr_med.lab.comparison.runs import OnProgress, Progress
from fedmr_med.lab.flamby.checkout import find_strategies, published
from fedmr_med.lab.flamby.data import ComparisonData
from fedmr_med.lab.flamby.loaders import ExecutorBatches
from fedmr_med.lab.flamby.request import POOLED, Buffers, CompareRequest, site_name
from fedmr_med.models.job_network import build_network
from fedmr_med.network import Network
from fedmr_med.runner import Federation
from fedmr_med.site import criterion
from fedmr_med.statistics.model_sums import Sums


def by_federation(request: CompareRequest, job: JobConfig, folder: Path, on_progress: OnProgress) -> Arrays:
    """Train by a method of this package, through the executor; resumes from ``folder``."""
    steps = request.updates * len(request.centers)
    federation = Federation(job, request.sites(), folder)
    return federation.run(lambda state: on_progress(Progress(state.round * steps, steps))).leaving().model


def without_federation(
    center: int | None, steps: int, data: ComparisonData, job: JobConfig, on_progress: OnProgress
) -> Arrays:
    """Train on the data of one centre, or with None of all in one place."""
    if center is None:
        fold, site = data.pooled_train(), POOLED
    else:
        site = site_name(center)
        fold = data.train[site]
    network = placed(build_network(job, pretrained=True))
    loss = _loss(data, job)
    optimizer = torch.optim.SGD(network.parameters(), lr=job.train.lr)
    network.train()
    loader = _loader(fold, site, data, job, job.train.updates or steps, _StepCounter(on_progress))
    for images, labels in itertools.islice(loader, steps):
        logits = network(images.to(_device()))[1]
        optimizer.zero_grad()
        loss(logits, labels.to(_device())).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return models.state_arrays(network)


def by_strategy(
    name: str,
    policies: Sequence[Buffers],
    request: CompareRequest,
    data: ComparisonData,
    job: JobConfig,
    on_progress: OnProgress,
) -> dict[str, Arrays]:
    """Train by a strategy of FLamby, on the batches the executor would use; return the model under each policy.

    Raises:
        ConfigError: FLamby is not there.
    """
    strategies, reason = find_strategies(request.flamby)
    if strategies is None:
        raise ConfigError(reason, code="package.missing", key="--flamby")
    counter = _StepCounter(on_progress)
    strategy = getattr(strategies, name)(
        training_dataloaders=[
            _loader(fold, site, data, job, request.updates, counter) for site, fold in data.train.items()
        ],
        model=LogitsOnly(build_network(job, pretrained=True)),
        loss=_loss(data, job),
        optimizer_class=torch.optim.SGD,
        num_updates=request.updates,
        nrounds=request.rounds,
        **published().strategies[name],
    )
    states = [models.state_arrays(model.network) for model in strategy.run()]
    sizes = [len(fold) for fold in data.train.values()]
    parameters = models.parameter_names(build_network(job))
    averaged = states[0] | average_buffers(states, sizes, parameters)
    return {policy: averaged if policy == "average" else states[0] for policy in policies}


class _StepCounter:
    """Reports local steps one by one."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._done = 0

    def __call__(self) -> None:
        self._done += 1
        self._on_progress(Progress(self._done, 1))


class LogitsOnly(nn.Module):
    """A network of this package as FLamby's strategies expect a model: its output are the logits alone."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = placed(network)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, num_classes)."""
        logits: Tensor = self.network(x)[1]
        return logits


def average_buffers(states: Sequence[Arrays], sizes: Sequence[int], parameters: frozenset[str]) -> Arrays:
    """Return the buffers averaged over the clients by their number of samples; counters take the largest value."""
    floats: list[Mapping[str, Any]] = []
    counters: Arrays = {}
    for state in states:
        buffers = {name: array for name, array in state.items() if name not in parameters}
        floats.append({name: array for name, array in buffers.items() if array.dtype.kind == "f"})
        for name in buffers.keys() - floats[-1].keys():
            counters[name] = max(counters.get(name, buffers[name]), buffers[name])
    sums = Sums()
    for arrays, size in zip(floats, sizes, strict=True):
        sums.add("buffers", arrays, size)
    return {**sums.mean("buffers", sum(sizes)), **counters} if floats[0] else counters


def placed(network: Network) -> Network:
    """Return a network where and how it is fastest, as the executor has it."""
    moved: Network = network.to(_device(), memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved


def _loader(
    fold: Fold, site: str, data: ComparisonData, job: JobConfig, updates: int, counter: _StepCounter
) -> ExecutorBatches:
    batches = data.train_batches(fold, augment=job.train.augment)
    return ExecutorBatches(fold, batches, job.seed, site, updates, counter)


def _loss(data: ComparisonData, job: JobConfig) -> criterion.Criterion:
    return criterion.build(job.loss, class_counts(data.pooled_train(), job.task.num_classes), _device())


def _device() -> torch.device:
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
