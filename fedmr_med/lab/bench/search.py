"""Choosing each method's settings before a comparison: as many tries for everyone, never on the test set."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from pydantic import JsonValue

from fedmr_med.evaluation.results import RunResult
from fedmr_med.lab.bench.request import BenchRequest
from fedmr_med.schema import read_yaml

FILE = Path(__file__).with_suffix(".yaml")
HELD_OUT = 0.2
"""The share of each client's training data that the values are scored on."""


def candidates(request: BenchRequest) -> list[BenchRequest]:
    """Return what a comparison wants tried, on held-out training data: one method with one setting each.

    Those are all combinations of the method's lists in ``search.yaml``; none for a method without lists.
    """
    if request.tune is None:
        return []
    rounds, grids = request.tune_rounds or request.rounds, read_yaml(FILE)
    common = {"seeds": (request.tune,), "rounds": rounds, "held_out": HELD_OUT, "tune": None, "tune_rounds": None}
    return [
        request.model_copy(
            update=common | {"methods": (method,), "chosen": {method: dict(zip(grid, tried, strict=True))}}
        )
        for method in request.methods
        if (grid := grids.get(method))
        for tried in product(*grid.values())
    ]


def best(tried: Sequence[BenchRequest], results: Sequence[RunResult]) -> dict[str, dict[str, JsonValue]]:
    """Return for each method the settings with the best mean balanced accuracy of the last five rounds.

    The first of equal ones wins, and a run that failed or was not scored never does: a method of which all failed keeps
        its defaults. ``results`` are in the order of what :func:`candidates` returned.
    """
    chosen: dict[str, dict[str, JsonValue]] = {}
    accuracies: dict[str, float] = {}
    for request, result in zip(tried, results, strict=True):
        (method,) = request.methods
        accuracy = result.last5_balanced_accuracy
        if result.error is None and accuracy is not None and accuracy > accuracies.get(method, -1.0):
            chosen[method], accuracies[method] = request.chosen[method], accuracy
    return chosen
