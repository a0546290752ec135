"""Finding FLamby, which is not on PyPI."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np

from fedmr_med.errors import ConfigError

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
    """Return the module of one of FLamby's datasets, such as ``fed_isic2019``.

    Without a ``checkout`` the one that ``FEDMR_MED_FLAMBY`` names is taken, or what is installed.

    Raises:
        ConfigError: FLamby is not there, ``checkout`` is not one, or it cannot be imported.
    """
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    # FLamby's progress bars would write over ours.
    os.environ.setdefault("TQDM_DISABLE", "1")
    module, reason = _find(f"flamby.datasets.{name}", checkout)
    if module is None:
        raise ConfigError(
            f"{reason}. {HOW_TO_GET} A site names it in data.flamby, or {VARIABLE}.",
            code="package.missing",
            key="data.flamby",
        )
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
    if checkout is None and (named := os.environ.get(VARIABLE)):
        checkout = Path(named)
    if checkout is not None:
        if not (checkout / "flamby" / "strategies").is_dir():
            raise ConfigError(
                f"--flamby {checkout} is not a checkout of FLamby. {HOW_TO_GET}", code="file.wrong-kind", key="--flamby"
            )
        if str(checkout.resolve()) not in sys.path:
            sys.path.insert(0, str(checkout.resolve()))
    try:
        return importlib.import_module(name), ""
    except ModuleNotFoundError as e:
        reason = "FLamby is not installed" if e.name == "flamby" else f"FLamby needs the package {e.name}"
        if checkout is not None:
            raise ConfigError(
                f"--flamby {checkout}: {reason}. {HOW_TO_GET}", code="package.broken", key="--flamby"
            ) from e
        return None, reason
