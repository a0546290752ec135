"""A comparison on Fed-ISIC2019: through the executor, by a strategy of FLamby, or without a federation."""

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import JsonValue

from fedmr_med import models
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, class_counts
from fedmr_med.data.loading import Batches
from fedmr_med.errors import ConfigError
from fedmr_med.inference.predict import Logits
from fedmr_med.lab.comparison.runs import OnProgress
from fedmr_med.lab.flamby.checkout import find_strategies, published
from fedmr_med.lab.flamby.data import ComparisonData, load_data
from fedmr_med.lab.flamby.loaders import ExecutorBatches
from fedmr_med.lab.flamby.request import LOCAL, POOLED, CompareRequest, site_name
from fedmr_med.lab.flamby.results import Row, RunRows
from fedmr_med.lab.flamby.runs import CHECKPOINTS, Training
from fedmr_med.models.job_network import build_network
from fedmr_med.network import Network
from fedmr_med.process import kept_memory
from fedmr_med.report.progress import Progress
from fedmr_med.runner import Federation
from fedmr_med.site import criterion
from fedmr_med.statistics.model_sums import Sums


@dataclass(frozen=True)
class IsicRun(Training):
    """A training on Fed-ISIC2019; ours goes through the executor, unless it is without a federation."""

    request: CompareRequest

    @property
    def steps(self) -> int:
        """The local steps of the whole run, and what scoring its models takes, in local steps."""
        return self.training_steps + max(len(self.policies), 1) * self._scoring_steps

    @property
    def training_steps(self) -> int:
        """The local steps of the whole run."""
        return self.request.rounds * self.request.updates * (1 if self.method == LOCAL else len(self.request.centers))

    @property
    def _scoring_steps(self) -> int:
        """How many local steps take as long as a model's pass over all test images: forwards are a third of a step."""
        images = sum(len(fold) for fold in load_data(self.request).test.values())
        return math.ceil(images / self.request.batch / 3)

    def job(self) -> JobConfig:
        """Return its job; what is not federated takes network, loss and optimiser from FedAvg's."""
        if self.source == "ours" and self.federated:
            return self.request.job(self.method, self.seed, self.policies[0])
        return self.request.job("fedavg", self.seed)

    def execute(self, folder: Path, on_progress: OnProgress) -> RunRows:
        """Train, or train the rest, and score the model on all test folds."""
        # FLamby prints on standard output, which belongs to the result of the command.
        with kept_memory(), redirect_stdout(sys.stderr):
            job = self.job()
            network = placed(build_network(job))
            rows: list[Row] = []
            trained = self.train(folder, on_progress)
            on_progress(Progress(self.training_steps, 0, "scoring"))
            for number, (policy, arrays) in enumerate(trained.items(), start=1):
                models.load_arrays(network, arrays)
                rows += self._rows(job, policy, network)
                done = self.training_steps + number * self._scoring_steps
                on_progress(Progress(done, self._scoring_steps, "scoring"))
        return RunRows(rows=tuple(rows))

    def train(self, folder: Path, on_progress: OnProgress) -> dict[str, Arrays]:
        """Return the trained model by what became of BatchNorm statistics."""
        if self.source == "flamby":
            return self._by_strategy(on_progress)
        if not self.federated:
            return {"own": self._alone(on_progress)}
        steps = self.request.updates * len(self.request.centers)
        federation = Federation(self.job(), self.request.sites(), folder / CHECKPOINTS)
        state = federation.run(lambda state: on_progress(Progress(state.round * steps, steps)))
        return {self.policies[0]: state.leaving().model}

    def _alone(self, on_progress: OnProgress) -> Arrays:
        """Train on the data of one centre, or of all in one place."""
        data, job = load_data(self.request), self.job()
        site = POOLED if self.center is None else site_name(self.center)
        fold = data.pooled_train() if self.center is None else data.train[site]
        network = placed(build_network(job, pretrained=True))
        loss = _loss(data, job)
        optimizer = torch.optim.SGD(network.parameters(), lr=job.train.lr)
        network.train()
        loader = self._loader(fold, site, on_progress, itertools.count(1))
        for images, labels in itertools.islice(loader, self.training_steps):
            logits = network(images.to(_device()))[1]
            optimizer.zero_grad()
            loss(logits, labels.to(_device())).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return models.state_arrays(network)

    def _by_strategy(self, on_progress: OnProgress) -> dict[str, Arrays]:
        """Train by a strategy of FLamby, on the batches the executor would use; return the model under each policy."""
        data, job, request = load_data(self.request), self.job(), self.request
        strategies, reason = find_strategies(request.flamby)
        if strategies is None:
            raise ConfigError(reason, code="package.missing", key="--flamby")
        done = itertools.count(1)
        strategy = getattr(strategies, self.method)(
            training_dataloaders=[self._loader(fold, site, on_progress, done) for site, fold in data.train.items()],
            model=Logits(placed(build_network(job, pretrained=True))),
            loss=_loss(data, job),
            optimizer_class=torch.optim.SGD,
            num_updates=request.updates,
            nrounds=request.rounds,
            **published().strategies[self.method],
        )
        states = [models.state_arrays(model.network) for model in strategy.run()]
        sizes = [len(fold) for fold in data.train.values()]
        averaged = states[0] | average_buffers(states, sizes, models.parameter_names(build_network(job)))
        return {policy: averaged if policy == "average" else states[0] for policy in self.policies}

    def _loader(self, fold: Fold, site: str, on_progress: OnProgress, done: Iterator[int]) -> ExecutorBatches:
        """Return the batches of a site, each of which reports the next number of the steps ``done``."""
        job, updates = self.job(), self.request.updates
        batches = Batches.of(fold, job.task, batch_size=self.request.batch, augment=job.train.augment)
        return ExecutorBatches(fold, batches, self.seed, site, updates, lambda: on_progress(Progress(next(done), 1)))

    def _rows(self, job: JobConfig, policy: str, network: Network) -> list[Row]:
        settings: dict[str, JsonValue] = {"learning_rate": job.train.lr, **job.method.options}
        if self.source == "flamby":
            settings = published().strategies[self.method]
        return [
            Row(
                method=self.label,
                source=self.source,
                bn=policy,
                test=test,
                balanced_accuracy=score.mean_recall,
                seed=self.seed,
                images=score.samples,
                settings=settings,
            )
            for test, score in load_data(self.request).score(network).items()
        ]


def average_buffers(states: Sequence[Arrays], sizes: Sequence[int], parameters: frozenset[str]) -> Arrays:
    """Return the buffers averaged over the clients by their number of samples; counters take the largest value."""
    buffers = {name: array for name, array in states[0].items() if name not in parameters}
    floats = [name for name, array in buffers.items() if array.dtype.kind == "f"]
    sums = Sums()
    for state, size in zip(states, sizes, strict=True):
        sums.add("buffers", {name: state[name] for name in floats}, size)
    counters = {name: max(state[name] for state in states) for name in buffers.keys() - set(floats)}
    return {**(sums.mean("buffers", sum(sizes)) if floats else {}), **counters}


def placed(network: Network) -> Network:
    """Return a network where and how it is fastest, as the executor has it."""
    moved: Network = network.to(_device(), memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved


def _loss(data: ComparisonData, job: JobConfig) -> criterion.Criterion:
    return criterion.build(job.loss, class_counts(data.pooled_train(), job.task.num_classes), _device())


def _device() -> torch.device:
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
