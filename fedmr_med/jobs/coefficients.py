"""The paper's coefficients per dataset, split and method, from ``coefficients.yaml``."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedmr_med.methods.base import METHODS
from fedmr_med.schema import read_yaml

FILE = Path(__file__).with_suffix(".yaml")
OTHER, REAL = "other", "real"

# The options that each method's column of the paper's tables stands for; FedAvg and FedNova have no column.
_OPTIONS = {
    "fedprox": ("mu",),
    "fedproc": ("mu",),
    "moon": ("mu",),
    "feddyn": ("alpha",),
    "feddc": ("alpha",),
    "fedmr": ("mu1", "mu2"),
}


def coefficients(dataset: str, split: str | None, method: str) -> dict[str, Any]:
    """Return the options of a method for a dataset and split, as the paper tuned them.

    For a split that the paper does not list, the dataset's usual values; for a dataset or method it does not list,
    none, so that the method's own defaults hold. ``split`` is None where the hospitals hold their own data.

    Raises:
        ConfigError: there is no such method.
    """
    METHODS.get(method, "method.name")
    rows = _tables().get(dataset)
    if rows is None or method not in _OPTIONS:
        return {}
    value = rows.get(_row(split), rows[OTHER])[method]
    return dict(zip(_OPTIONS[method], value if isinstance(value, list) else [value], strict=True))


def default_options(dataset: str, split: str | None, method: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options a job starts from: the paper's coefficients.

    FedMR has them in its variant ``paper`` only, if ``changes`` ask for that; its default variant is not the paper's
    and needs no coefficient of its own for a dataset.
    """
    if method == "fedmr" and changes.get("variant", changes.get("fedmr.variant")) != "paper":
        return {"variant": "replayed"}
    return coefficients(dataset, split, method)


def published(dataset: str, split: str | None) -> bool:
    """Whether the paper lists coefficients for this dataset and split."""
    return _row(split) in _tables().get(dataset, {}).keys() - {OTHER}


def _row(split: str | None) -> str:
    return (split or REAL).lower()


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows by dataset and lower-case split."""
    return {dataset: {split.lower(): row for split, row in rows.items()} for dataset, rows in read_yaml(FILE).items()}
