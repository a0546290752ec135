"""FLamby's settings and published results: of Fed-ISIC2019 from ``published.yaml``, of others from its checkout."""

import csv
import json
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from types import ModuleType
from typing import Any

from pydantic import JsonValue

from fedmr_med.errors import ConfigError
from fedmr_med.lab.flamby.checkout import HOW_TO_GET
from fedmr_med.schema import Strict, read_yaml, validated

UPDATES = 100
"""Local updates of a round in FLamby's benchmarks."""


class Result(Strict):
    """Published scores of one method by the dataset's own metric, mean over five seeds.

    Attributes:
        pooled, std: on the test images of all centres, and its standard deviation.
        centers: on the test images of each centre.
    """

    pooled: float
    std: float
    centers: tuple[float, ...]


class Published(Strict):
    """What FLamby's repository says about Fed-ISIC2019: settings, the budget of the numbers, and the numbers."""

    strategies: dict[str, dict[str, JsonValue]]
    protocol: dict[str, int]
    results: dict[str, Result]


@lru_cache
def published() -> Published:
    """Return the content of ``published.yaml``."""
    path = Path(__file__).with_name("published.yaml")
    return validated(Published, read_yaml(path), str(path))


def strategies_of(dataset: ModuleType) -> dict[str, dict[str, Any]]:
    """Return the arguments of each strategy, from FLamby's ``config_*.json`` for one of its datasets.

    Raises:
        ConfigError: FLamby was installed without its configurations.
    """
    name = _name(dataset)
    path = _package(dataset) / f"config_{name.removeprefix('fed_')}.json"
    if not path.exists():
        raise ConfigError(
            f"FLamby's {path.name} is not there; take a checkout. {HOW_TO_GET}", code="file.missing", key="--flamby"
        )
    strategies: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["strategies"]
    return strategies


def results_of(dataset: ModuleType) -> dict[str, Result]:
    """Return what FLamby's files of results say about one of its datasets; nothing where there are none."""
    name = _name(dataset)
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((_package(dataset) / "results" / f"results_benchmark_{name}").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                scores[row["Method"].removesuffix(str(UPDATES))][row["Test"]].append(float(row["Metric"]))
    return {
        method: Result(
            pooled=fmean(tests["Pooled Test"]),
            std=stdev(tests["Pooled Test"]),
            centers=tuple(fmean(tests[test]) for test in sorted(tests.keys() - {"Pooled Test"})),
        )
        for method, tests in scores.items()
    }


def _name(dataset: ModuleType) -> str:
    return dataset.__name__.rpartition(".")[2]


def _package(dataset: ModuleType) -> Path:
    return Path(dataset.__file__ or "").parents[2]
