"""FLamby, which is not on PyPI: where it is, its settings, and its published results.

Those of Fed-ISIC2019 are in ``published.yaml``, others in the checkout.
"""

import csv
import importlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import JsonValue

from fedmr_med.errors import ConfigError
from fedmr_med.schema import Strict, read_yaml, validated

UPDATES = 100
"""Local updates of a round in FLamby's benchmarks."""

VARIABLE = "FEDMR_MED_FLAMBY"
ADDRESS = "https://github.com/owkin/FLamby"
HOW_TO_GET = (
    f"git clone {ADDRESS} (tested with commit edacf54 of June 2024), in the clone of this toolkit "
    "pip install -e '.[flamby]' for what it imports (pandas below 3), then --flamby FLamby."
)


def find_strategies(checkout: Path | None) -> tuple[ModuleType | None, str]:
    """Return the module ``flamby.strategies`` and "", or None and the reason why it is not there.

    Without a ``checkout``, a clone of FLamby's repository, the one that ``FEDMR_MED_FLAMBY`` names is taken, or what is
    installed.

    Raises:
        ConfigError: ``checkout`` is not one, or cannot be imported.
    """
    return _find("flamby.strategies", checkout)


def find_dataset(checkout: Path | None, name: str) -> ModuleType:
    """Return the module of one of FLamby's datasets, such as ``fed_isic2019``; see :func:`find_strategies`.

    Raises:
        ConfigError: FLamby is not there, ``checkout`` is not one, or it cannot be imported.
    """
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    # FLamby's progress bars would write over ours.
    os.environ.setdefault("TQDM_DISABLE", "1")
    module, reason = _find(f"flamby.datasets.{name}", checkout)
    if module is None:
        why = f"{reason}. {HOW_TO_GET} A site names it in data.flamby, or {VARIABLE}."
        raise ConfigError(why, code="package.missing", key="data.flamby")
    return module


@contextmanager
def older_numpy() -> Iterator[None]:
    """Give numpy the name ``NaN`` back, which FLamby's readers use, while the body runs."""
    missing = not hasattr(np, "NaN")
    if missing:
        np.NaN = np.nan  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if missing:
            del np.NaN  # type: ignore[attr-defined]


def _find(name: str, checkout: Path | None) -> tuple[ModuleType | None, str]:
    named = os.environ.get(VARIABLE)
    checkout = checkout or (Path(named) if named else None)
    if checkout is not None:
        if not (checkout / "flamby" / "strategies").is_dir():
            why = f"--flamby {checkout} is not a checkout of FLamby. {HOW_TO_GET}"
            raise ConfigError(why, code="file.wrong-kind", key="--flamby")
        if str(checkout.resolve()) not in sys.path:
            sys.path.insert(0, str(checkout.resolve()))
    try:
        return importlib.import_module(name), ""
    except ModuleNotFoundError as e:
        reason = "FLamby is not installed" if e.name == "flamby" else f"FLamby needs the package {e.name}"
        if checkout is not None:
            why = f"--flamby {checkout}: {reason}. {HOW_TO_GET}"
            raise ConfigError(why, code="package.broken", key="--flamby") from e
        return None, reason


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
    package, name = _place(dataset)
    path = package / f"config_{name.removeprefix('fed_')}.json"
    if not path.exists():
        why = f"FLamby's {path.name} is not there; take a checkout. {HOW_TO_GET}"
        raise ConfigError(why, code="file.missing", key="--flamby")
    strategies: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["strategies"]
    return strategies


def results_of(dataset: ModuleType) -> dict[str, Result]:
    """Return what FLamby's files of results say about one of its datasets; nothing where there are none."""
    package, name = _place(dataset)
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((package / "results" / f"results_benchmark_{name}").glob("*.csv")):
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


def _place(dataset: ModuleType) -> tuple[Path, str]:
    """Return the folder of the package ``flamby``, and the name of a dataset there."""
    return Path(dataset.__file__ or "").parents[2], dataset.__name__.rpartition(".")[2]
