"""The federated methods, one file each, and the registry that finds them by name."""

# In the paper's order, which is the order of available().
from fedmr_med.methods import fedavg, fedprox, fedproc, fednova, moon, feddyn, feddc, fedmr  # isort: skip
from fedmr_med.methods.base import Method, available, build

__all__ = [
    "Method",
    "available",
    "build",
    "fedavg",
    "feddc",
    "feddyn",
    "fedmr",
    "fednova",
    "fedproc",
    "fedprox",
    "moon",
]
