"""The federated methods, one file each, and the registry that finds them by name."""

# In the paper's order, which is the order of available() as well.
from fedmr_med.methods import fedavg, fedprox, fedproc, fednova, moon, feddyn, feddc, fedmr, scaffold  # noqa: F401  # isort: skip
from fedmr_med.methods.base import Method, available, build

PAPER_METHODS = ("fedavg", "fedprox", "fedproc", "fednova", "moon", "feddyn", "feddc", "fedmr")
"""The eight methods of the paper's tables. A method that is registered besides does not join them by itself."""

__all__ = ["PAPER_METHODS", "Method", "available", "build"]
