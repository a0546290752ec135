"""FedMR in FLamby's own scripts: ``fed_benchmark.py`` then takes it from its configuration file like a strategy.

import fedmr_med.lab.flamby
fedmr_med.lab.flamby.register()
from flamby.benchmarks.fed_benchmark import main    # with "FedMR": {...} under "strategies" in the JSON
"""

import functools
import importlib
import sys
from typing import Any

from fedmr_med.errors import ConfigError
from fedmr_med.lab.flamby.checkout import HOW_TO_GET, find_strategies
from fedmr_med.lab.flamby.strategy import FedMR

NAME = "FedMR"
_USERS = ("flamby.benchmarks.benchmark_utils", "flamby.benchmarks.fed_benchmark")


def register() -> None:
    """Make FedMR a strategy of FLamby's in this process; a second call changes nothing.

    FLamby finds a strategy by its name in ``flamby.strategies``, and looks its results up by a function that insists on
    a list of names.

    Raises:
        ConfigError: FLamby cannot be imported.
    """
    strategies, reason = find_strategies(None)
    if strategies is None:
        raise ConfigError(f"{reason}. {HOW_TO_GET}", code="package.missing")
    setattr(strategies, NAME, FedMR)
    utils: Any = importlib.import_module(_USERS[0])
    original = getattr(utils.find_xps_in_df, "__wrapped__", utils.find_xps_in_df)

    @functools.wraps(original)
    def find_xps_in_df(df: Any, hyperparameters: Any, sname: str, num_updates: int) -> Any:
        if sname != NAME:
            return original(df, hyperparameters, sname, num_updates)
        # FLamby compares the method's name with sname + updates: look it up under a name that it knows.
        ours, theirs = f"{NAME}{num_updates}", f"FedAvg{num_updates}"
        renamed = df.assign(Method=df["Method"].replace({ours: theirs, theirs: ours}))
        return original(renamed, hyperparameters, "FedAvg", num_updates)

    for name in _USERS:
        module = sys.modules.get(name)
        if module is not None:
            module.find_xps_in_df = find_xps_in_df  # type: ignore[attr-defined]
