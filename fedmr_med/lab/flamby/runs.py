"""The runs of a comparison with FLamby: what each trains, and the rows that come of it."""

import math
import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import JsonValue

from fedmr_med import models
from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.lab.comparison.runs import OnProgress, Progress
from fedmr_med.lab.flamby import training
from fedmr_med.lab.flamby.checkout import published
from fedmr_med.lab.flamby.data import load_data
from fedmr_med.lab.flamby.request import LOCAL, POOLED, Buffers, CompareRequest, SetRequest
from fedmr_med.lab.flamby.results import Row, RunRows
from fedmr_med.models.job_network import build_network
from fedmr_med.network import Network
from fedmr_med.process import kept_memory

CHECKPOINTS = "federation"


Source = Literal["ours", "flamby"]


@dataclass(frozen=True)
class Training:
    """One training of a comparison, by a method of this package or a strategy of FLamby.

    Attributes:
        source: whose code trains.
        method: its name; ``local`` and ``pooled`` are trained without a federation.
        seed: of model, order, augmentation and dropout.
        policies: what becomes of BatchNorm statistics, where that is a choice.
        center: of ``local``.
    """

    request: CompareRequest | SetRequest
    source: Source
    method: str
    seed: int
    policies: tuple[Buffers, ...] = ()
    center: int | None = None

    @property
    def label(self) -> str:
        """What tables call it."""
        if self.method == LOCAL:
            return f"Local {self.center}"
        return "Pooled Training" if self.method == POOLED else self.method

    @property
    def federated(self) -> bool:
        """Whether several centres train one model."""
        return self.method not in (LOCAL, POOLED)

    @property
    def title(self) -> str:
        """What progress and messages call it."""
        return ", ".join((self.label, *self.policies, f"seed {self.seed}"))

    @property
    def name(self) -> str:
        """Name of its folder."""
        parts = (self.source, self.label.replace(" ", "-").lower(), *self.policies, f"seed{self.seed}")
        return "-".join((*parts, self.request.digest()))

    @property
    def result_type(self) -> type[RunRows]:
        """The model of its result."""
        return RunRows

    def failed(self, error: str) -> RunRows:
        """See :class:`fedmr_med.lab.comparison.runs.Run`."""
        return RunRows(error=error)

    def clean_up(self, folder: Path) -> None:
        """Remove checkpoints; only the scores stay."""
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


T = TypeVar("T", bound=Training)


def planned(
    kind: type[T],
    request: CompareRequest | SetRequest,
    alone: Source,
    centers: Sequence[int],
    strategies: Sequence[str],
    policies: tuple[Buffers, ...] = (),
) -> list[T]:
    """Return all trainings of a comparison.

    ``alone`` is whose code trains the ``centers``, each without a federation. Of the ``policies`` for BatchNorm
    statistics, our methods are trained once for each, a strategy of FLamby once for all.
    """
    each: list[tuple[Buffers, ...]] = [(policy,) for policy in policies] or [()]
    made: list[T] = []
    for seed in request.seeds:
        for method in request.methods:
            if method == LOCAL:
                made += [kind(request, alone, LOCAL, seed, center=center) for center in centers]
            elif method == POOLED:
                made.append(kind(request, alone, POOLED, seed))
            else:
                made += [kind(request, "ours", method, seed, own) for own in each]
        made += [kind(request, "flamby", strategy, seed, policies) for strategy in strategies]
    return made


@dataclass(frozen=True)
class FlambyRun(Training):
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
            network = training.placed(build_network(job))
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
        data, job = load_data(self.request), self.job()
        if self.source == "flamby":
            return training.by_strategy(self.method, self.policies, self.request, data, job, on_progress)
        if self.federated:
            return {self.policies[0]: training.by_federation(self.request, job, folder / CHECKPOINTS, on_progress)}
        return {"own": training.without_federation(self.center, self.training_steps, data, job, on_progress)}

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
