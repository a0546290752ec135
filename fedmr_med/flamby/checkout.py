"""Finding FLamby, which is not on PyPI."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from fedmr_med.errors import ConfigError

ADDRESS = "https://github.com/owkin/FLamby"
HOW_TO_GET = (
    f"git clone {ADDRESS} (tested with commit edacf54 of June 2024), pip install 'fedmr-med[flamby]' for what it "
    "imports (pandas below 3), then --flamby FLamby."
)


def find_strategies(checkout: Path | None) -> tuple[ModuleType | None, str]:
    """Return the module ``flamby.strategies`` and "", or None and the reason why it is not there.

    Args:
        checkout: a clone of FLamby's repository; None tries to import what is installed.

    Raises:
        ConfigError: ``checkout`` is not one, or cannot be imported.
    """
    return _find("flamby.strategies", checkout)


def find_dataset(checkout: Path, name: str) -> ModuleType:
    """Return the module of one of FLamby's datasets, such as ``fed_isic2019``.

    Raises:
        ConfigError: ``checkout`` is not one, or cannot be imported.
    """
    module, _ = _find(f"flamby.datasets.{name}", checkout)
    assert module is not None
    return module


def _find(name: str, checkout: Path | None) -> tuple[ModuleType | None, str]:
    if checkout is not None:
        if not (checkout / "flamby" / "strategies").is_dir():
            raise ConfigError(f"--flamby {checkout} is not a checkout of FLamby. {HOW_TO_GET}")
        if str(checkout.resolve()) not in sys.path:
            sys.path.insert(0, str(checkout.resolve()))
    try:
        return importlib.import_module(name), ""
    except ModuleNotFoundError as e:
        reason = "FLamby is not installed" if e.name == "flamby" else f"FLamby needs the package {e.name}"
        if checkout is not None:
            raise ConfigError(f"--flamby {checkout}: {reason}. {HOW_TO_GET}") from e
        return None, reason
