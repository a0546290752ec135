"""One run of a comparison: what it trains, and the rows it leaves behind."""

import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedmr_med import models
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, class_counts
from fedmr_med.files import write_text
from fedmr_med.flamby.loaders import ExecutorBatches, Joined
from fedmr_med.flamby.material import Material
from fedmr_med.flamby.published import published
from fedmr_med.flamby.request import LOCAL, POOLED, Buffers, CompareRequest, site_name
from fedmr_med.models.base import Network
from fedmr_med.network import build_network
from fedmr_med.runner import Federation
from fedmr_med.site import criterion
from fedmr_med.sums import Sums

Source = Literal["ours", "flamby"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One training, by a method of this package or a strategy of FLamby.

    Attributes:
        source: whose code trains.
        method: its name; ``local`` and ``pooled`` are trained without a federation.
        seed: of model, order, augmentation and dropout.
        policies: what becomes of BatchNorm statistics; ours is one run for each, a strategy of FLamby one for all.
        center: of ``local``.
    """

    source: Source
    method: str
    seed: int
    policies: tuple[Buffers, ...] = ()
    center: int | None = None

    @property
    def federated(self) -> bool:
        """Whether it goes through the executor."""
        return self.source == "ours" and self.method not in (LOCAL, POOLED)

    @property
    def label(self) -> str:
        """What tables call it."""
        if self.method == LOCAL:
            return f"Local {self.center}"
        return "Pooled Training" if self.method == POOLED else self.method

    @property
    def name(self) -> str:
        """Name of its file."""
        parts = (self.source, self.label.replace(" ", "-").lower(), *self.policies, f"seed{self.seed}")
        return "-".join(parts)

    def steps(self, request: CompareRequest) -> int:
        """Return the local steps of the whole run."""
        return request.rounds * request.updates * (1 if self.method == LOCAL else len(request.centers))


def runs_of(request: CompareRequest, *, with_flamby: bool) -> list[Run]:
    """Return all runs of a comparison."""
    runs = []
    for seed in request.seeds:
        for method in request.methods:
            if method == LOCAL:
                runs += [Run("ours", LOCAL, seed, center=center) for center in request.centers]
            elif method == POOLED:
                runs.append(Run("ours", POOLED, seed))
            else:
                runs += [Run("ours", method, seed, (policy,)) for policy in request.policies]
        if with_flamby:
            runs += [Run("flamby", strategy, seed, request.policies) for strategy in request.strategies]
    return runs


@dataclass(frozen=True)
class Workshop:
    """What all runs of a comparison share.

    Attributes:
        request: what was asked for.
        material: the data.
        folder: holds one file per finished run, and the checkpoints of the others.
        strategies: the module ``flamby.strategies``, if FLamby is there.
    """

    request: CompareRequest
    material: Material
    folder: Path
    strategies: ModuleType | None = None

    def finished(self, run: Run) -> list[Row] | None:
        """Return the rows of a run that has ended before; None if it has not."""
        path = self._path(run)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def execute(self, run: Run, after_steps: Callable[[int], None] = lambda steps: None) -> list[Row]:
        """Do a run, or the rest of it, write its rows and return them.

        Args:
            run: what to do.
            after_steps: told how many local steps were done since the last call.
        """
        job = self._job(run)
        if run.source == "flamby":
            trained = self._strategy(run, job, after_steps)
        elif run.federated:
            trained = {run.policies[0]: self._federation(run, job, after_steps)}
        else:
            trained = {"own": self._alone(run, job, after_steps)}
        network = _placed(build_network(job))
        rows: list[Row] = []
        for policy, arrays in trained.items():
            models.load_arrays(network, arrays)
            rows += self._rows(run, job, policy, network)
        write_text(self._path(run), json.dumps(rows))
        shutil.rmtree(self._path(run).with_suffix(""), ignore_errors=True)
        return rows

    def _job(self, run: Run) -> JobConfig:
        """Return the job of a run; what is not federated takes network, loss and optimiser from FedAvg's."""
        if run.federated:
            return self.request.job(run.method, run.seed, run.policies[0])
        return self.request.job("fedavg", run.seed)

    def _path(self, run: Run) -> Path:
        return self.folder / f"{run.name}-{self.request.digest()}.json"

    def _rows(self, run: Run, job: JobConfig, policy: str, network: Network) -> list[Row]:
        settings: dict[str, Any] = {"learning_rate": job.train.lr} | dict(job.method.options)
        if run.source == "flamby":
            settings = published().strategies[run.method]
        return [
            {
                "method": run.label,
                "source": run.source,
                "bn": policy,
                "test": test,
                "balanced_accuracy": score.balanced_accuracy,
                "seed": run.seed,
                "images": score.samples,
                "settings": settings,
            }
            for test, score in self.material.score(network).items()
        ]

    def _federation(self, run: Run, job: JobConfig, after_steps: Callable[[int], None]) -> Arrays:
        """Train by a method of this package, through the executor."""
        federation = Federation(job, self.request.sites(), self._path(run).with_suffix(""))
        steps = self.request.updates * len(self.request.centers)
        return federation.run(lambda state: after_steps(steps)).model

    def _alone(self, run: Run, job: JobConfig, after_steps: Callable[[int], None]) -> Arrays:
        """Train on the data of one centre, or of all in one place, without a federation."""
        if run.center is None:
            fold, site = self.material.pooled_train(), POOLED
        else:
            site = site_name(run.center)
            fold = self.material.train[site]
        network = _placed(build_network(job, pretrained=True))
        loss = self._loss(job)
        optimizer = torch.optim.SGD(network.parameters(), lr=job.train.lr)
        network.train()
        loader = self._loader(fold, site, job, after_steps)
        for images, labels in itertools.islice(loader, run.steps(self.request)):
            logits = network(images.to(_device()))[1]
            optimizer.zero_grad()
            loss(logits, labels.to(_device())).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return models.state_arrays(network)

    def _strategy(self, run: Run, job: JobConfig, after_steps: Callable[[int], None]) -> dict[str, Arrays]:
        """Train by a strategy of FLamby, on the batches the executor would use."""
        assert self.strategies is not None
        strategy = getattr(self.strategies, run.method)(
            training_dataloaders=[
                self._loader(fold, site, job, after_steps) for site, fold in self.material.train.items()
            ],
            model=Logits(build_network(job, pretrained=True)),
            loss=self._loss(job),
            optimizer_class=torch.optim.SGD,
            num_updates=self.request.updates,
            nrounds=self.request.rounds,
            **published().strategies[run.method],
        )
        states = [models.state_arrays(model.network) for model in strategy.run()]
        sizes = [len(fold) for fold in self.material.train.values()]
        parameters = models.parameter_names(build_network(job))
        averaged = states[0] | average_buffers(states, sizes, parameters)
        return {policy: averaged if policy == "average" else states[0] for policy in run.policies}

    def _loader(self, fold: Fold, site: str, job: JobConfig, after_steps: Callable[[int], None]) -> ExecutorBatches:
        batches = self.material.train_batches(fold, augment=job.train.augment)
        return ExecutorBatches(fold, batches, job.seed, site, self.request.updates, lambda: after_steps(1))

    def _loss(self, job: JobConfig) -> criterion.Criterion:
        counts = class_counts(Joined(list(self.material.train.values())), job.task.num_classes)
        return criterion.build(job.loss, counts, _device())


class Logits(nn.Module):
    """A network of this package as FLamby's strategies expect a model: its output are the logits alone."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = _placed(network)

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


def _placed(network: Network) -> Network:
    """Return a network where and how it is fastest, as the executor has it."""
    placed: Network = network.to(_device(), memory_format=torch.channels_last)  # type: ignore[call-overload]
    return placed


def _device() -> torch.device:
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
