"""Arithmetic on whole models: mappings from parameter names to tensors or arrays."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from fedmr_med.arrays import Arrays

Vector = Mapping[str, Tensor]


def squared_distance(a: Vector, b: Vector) -> Tensor:
    """Return ||a - b||^2 over the names of ``a``, a scalar."""
    return torch.stack([(value - b[name]).square().sum() for name, value in a.items()]).sum()


def inner_product(a: Vector, b: Vector) -> Tensor:
    """Return <a, b> over the names of ``a``, a scalar."""
    return torch.stack([(value * b[name]).sum() for name, value in a.items()]).sum()


def combine(a: Vector, factor: float, b: Vector) -> dict[str, Tensor]:
    """Return a + factor * b over the names of ``a``."""
    return {name: value + factor * b[name] for name, value in a.items()}


def to_arrays(vector: Vector) -> Arrays:
    """Return a vector as numpy arrays in C order."""
    return {name: value.detach().cpu().contiguous().numpy() for name, value in vector.items()}


def to_tensors(prefix: str, arrays: Mapping[str, npt.NDArray[Any]], like: Vector) -> dict[str, Tensor]:
    """Return the arrays that :func:`with_prefix` put there as tensors beside ``like``; zeros if there are none yet."""
    known = without_prefix(prefix, arrays)
    if not known:
        return {name: torch.zeros_like(v, requires_grad=False) for name, v in like.items()}
    return {name: torch.tensor(known[name], dtype=v.dtype, device=v.device) for name, v in like.items()}


def with_prefix(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return the arrays under ``prefix.name``, so that several vectors fit into one mapping."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def without_prefix(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return the arrays that :func:`with_prefix` put there, under their own names."""
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
