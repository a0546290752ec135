"""A comparison on another of FLamby's classification datasets, as FLamby's own benchmark makes it.

Loaders, network, loss, optimizer, budget and metric are FLamby's, and so are the steps of a run: those of its
``fed_benchmark.py``, which gives the same numbers. Our methods join as strategies.
"""

import copy
import io
import math
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from fedmr_med.errors import ConfigError, DataError
from fedmr_med.lab.comparison.runs import OnProgress
from fedmr_med.lab.flamby.checkout import UPDATES, find_dataset, find_strategies, older_numpy, strategies_of
from fedmr_med.lab.flamby.datasets import known_set
from fedmr_med.lab.flamby.request import OURS, SetRequest
from fedmr_med.lab.flamby.results import METRICS, Row, RunRows
from fedmr_med.lab.flamby.runs import Training, planned
from fedmr_med.lab.flamby.strategy import FedMR
from fedmr_med.lab.flamby.tables import CYCLIC
from fedmr_med.registry import check_known
from fedmr_med.report.progress import Progress
from fedmr_med.schema import brief

HIDDEN = 16
"""Units of the hidden layer that our methods get before a Baseline that is one linear layer."""


@dataclass(frozen=True)
class SetRun(Training):
    """A training on one of FLamby's datasets, by FLamby's code; ours are strategies."""

    request: SetRequest

    @property
    def steps(self) -> int:
        """One: FLamby's strategies do not say how far they are."""
        return 1

    def execute(self, folder: Path, on_progress: OnProgress) -> RunRows:
        """Train, and score the model on each centre's test data and on all of it, as FLamby does."""
        # What FLamby prints is in the rows.
        with redirect_stdout(io.StringIO()), older_numpy():
            utils = import_module("flamby.benchmarks.benchmark_utils")
            dataset = find_dataset(self.request.flamby, self.request.dataset)
            utils.set_seed(self.seed)
            model = dataset.Baseline()
            (train, test), (pooled_train, pooled_test) = self._loaders(dataset, utils)
            if not self.federated:
                loader = pooled_train if self.center is None else train[self.center]
                settings: dict[str, Any] = {"learning_rate": dataset.LR, "optimizer_class": dataset.Optimizer}
                trained = self._alone(model, loader, dataset, utils)
            else:
                settings = self._settings(dataset)
                trained = self._together(model, train, settings, dataset, utils)
            evaluate = utils.set_dataset_specific_config(self.request.dataset)[0]
            local, pooled, *_ = utils.evaluate_model_on_local_and_pooled_tests(
                trained, test, pooled_test, dataset.metric, evaluate
            )
        on_progress(Progress(1, 1))
        scores = zip(self.request.tests, (*pooled.values(), *local.values()), strict=True)
        return RunRows(rows=tuple(self._row(test, score, settings) for test, score in scores if not math.isnan(score)))

    def _loaders(self, dataset: ModuleType, utils: ModuleType) -> list[Any]:
        """Return the loaders of train and test data, by centre and pooled."""
        options = {"num_clients": dataset.NUM_CLIENTS, "batch_size": dataset.BATCH_SIZE, "num_workers": 0}
        options["collate_fn"] = getattr(dataset, "collate_fn", None)
        opened = partial(dataset.FedClass, data_path=str(self.request.data))
        try:
            return [utils.init_data_loaders(opened, pooled=pooled, **options) for pooled in (False, True)]
        except Exception as e:  # whatever FLamby raises where data is missing
            why = f"FLamby cannot read {self.request.dataset}: {brief(repr(e))}."
            raise DataError(why, code="data.unreadable") from e

    def _alone(self, model: nn.Module, loader: Any, dataset: ModuleType, utils: ModuleType) -> nn.Module:
        """Train on one loader, for FLamby's epochs."""
        utils.set_seed(self.seed)
        arguments = (dataset.Optimizer, dataset.LR, dataset.BaselineLoss, dataset.NUM_EPOCHS_POOLED)
        trained: nn.Module = utils.train_single_centric(
            model, loader, torch.cuda.is_available(), self.label, *arguments, seed=self.seed
        )
        return trained

    def _together(
        self, model: nn.Module, loaders: Any, settings: dict[str, Any], dataset: ModuleType, utils: ModuleType
    ) -> nn.Module:
        """Train by a strategy; the model of the first client is scored."""
        request = self.request
        kind: Any = FedMR if self.source == "ours" else getattr(import_module("flamby.strategies"), self.method)
        more = {"rng": np.random.default_rng(self.seed)} if self.method == "Cyclic" else {}
        strategy = kind(
            training_dataloaders=loaders,
            model=copy.deepcopy(model),
            loss=dataset.BaselineLoss(),
            num_updates=request.updates,
            nrounds=request.rounds or dataset.get_nb_max_rounds(request.updates),
            **settings,
            **more,
        )
        utils.set_seed(self.seed)
        trained: nn.Module = strategy.run()[0]
        return trained

    def _settings(self, dataset: ModuleType) -> dict[str, Any]:
        """Return the arguments of the strategy that are its own: those of ours, with FedAvg's learning rate."""
        known = strategies_of(dataset)
        settings = dict(known["FedAvg" if self.source == "ours" else self.method])
        settings["optimizer_class"] = getattr(torch.optim, settings["optimizer_class"].removeprefix("torch.optim."))
        if self.source == "ours":
            settings |= OURS[self.method] | {"seed": self.seed}
            if known_set(self.request.dataset).linear:
                settings["hidden"] = HIDDEN
        return settings

    def _row(self, test: str, score: float, settings: dict[str, Any]) -> Row:
        shown = {key: str(value) if key == "optimizer_class" else value for key, value in settings.items()}
        bn = "first" if self.federated else "own"
        metric = {known_set(self.request.dataset).metric: float(score)}
        return Row(method=self.label, source=self.source, bn=bn, test=test, seed=self.seed, settings=shown, **metric)


def set_runs(request: SetRequest) -> list[SetRun]:
    """Return all runs of a comparison.

    Raises:
        ConfigError: FLamby is not there, or has no such strategy for the dataset.
    """
    dataset = find_dataset(request.flamby, request.dataset)
    known, reason = strategies_of(dataset), find_strategies(request.flamby)[1]
    if reason:
        raise ConfigError(reason, code="package.missing", key="--flamby")
    strategies = tuple(sorted(known.keys() - {"Cyclic"})) if request.strategies is None else request.strategies
    for name in strategies:
        check_known(name, known, "strategies")
    return planned(SetRun, request, "flamby", range(dataset.NUM_CLIENTS), strategies)


def set_notes(request: SetRequest, runs: Iterable[Training]) -> list[str]:
    """Return what a reader has to know besides the numbers; the last line says how the published ones were made."""
    known = known_set(request.dataset)
    lines = [
        f"{METRICS[known.metric].capitalize()}, FLamby's metric for {request.dataset}. Loaders, network, loss, budget "
        "and settings are FLamby's; ours are strategies with the learning rate of its FedAvg."
    ]
    if known.linear:
        lines.append(
            "FLamby's Baseline is one linear layer, whose feature is a patient's raw attributes: ours "
            f"({', '.join(OURS)}) have a hidden layer of {HIDDEN} units before it, FLamby's own rows have none."
        )
    if any(run.method == "Cyclic" for run in runs):
        lines.append(CYCLIC)
    rounds = request.rounds or "FLamby's"
    here = f"here {rounds} rounds x {request.updates}, seeds {', '.join(map(str, request.seeds))}"
    return [*lines, f"Published numbers: FLamby's rounds x {UPDATES} updates, seeds 42 to 46; {here}."]
