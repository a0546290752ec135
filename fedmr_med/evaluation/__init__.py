"""How a model is scored: counts that add up over sites, metrics of them by name, and results as files."""

from fedmr_med.evaluation import builtin
from fedmr_med.evaluation.base import METRICS, Counts, Estimate, Metric, register

__all__ = ["METRICS", "Counts", "Estimate", "Metric", "builtin", "register"]
