"""FedMR in FLamby's own scripts: ``fed_benchmark.py``, unmodified, takes it from its configuration like a strategy.

    import runpy
    from fedmr_med.lab.flamby import register
    register(Path("FLamby"))        # "FedMR": {"variant": "replayed", ...} is now a name under "strategies" in the JSON
    runpy.run_path("FLamby/flamby/benchmarks/fed_benchmark.py", run_name="__main__")

docs/tutorials/inside_flamby.py does so.
"""

import functools
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmr_med.errors import ConfigError
from fedmr_med.lab.flamby.checkout import HOW_TO_GET, find_dataset, find_strategies
from fedmr_med.lab.flamby.strategy import FedMR

NAME = "FedMR"
_USERS = ("flamby.benchmarks.benchmark_utils", "flamby.benchmarks.fed_benchmark")


def register(checkout: Path | None = None, data: Mapping[str, Path] | None = None) -> None:
    """Make FedMR a strategy of FLamby's in this process; a second call changes nothing.

    FLamby finds a strategy by its name in ``flamby.strategies``, and looks its results up by a function that insists on
    a list of names. Its readers say ``numpy.NaN``, which numpy 2 has no more: it gets the name back.

    Args:
        checkout: a clone of FLamby's repository; None takes what is installed.
        data: folders of datasets by FLamby's name of them, in the place of what its own configuration says.

    Raises:
        ConfigError: FLamby cannot be imported.
    """
    strategies, reason = find_strategies(checkout)
    if strategies is None:
        raise ConfigError(f"{reason}. {HOW_TO_GET}", code="package.missing")
    np.NaN = np.nan  # type: ignore[attr-defined]
    setattr(strategies, NAME, FedMR)
    for name, folder in (data or {}).items():
        dataset = find_dataset(checkout, name)
        setattr(dataset, dataset.FedClass.__name__, functools.partial(dataset.FedClass, data_path=str(folder)))
    utils: Any = importlib.import_module(_USERS[0])
    original = getattr(utils.find_xps_in_df, "__wrapped__", utils.find_xps_in_df)

    @functools.wraps(original)
    def find_xps_in_df(df: Any, hyperparameters: Any, sname: str, num_updates: int) -> Any:
        # FLamby takes every column for numbers that is not of objects: an empty one, and in pandas 3 one of texts.
        values = hyperparameters.items()
        texts = [key for key, value in values if not isinstance(value, int | float) or df[key].dtype.kind == "O"]
        df = df.assign(**{key: df[key].map(str).astype(object) for key in texts})
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
