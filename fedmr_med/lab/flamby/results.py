"""What a comparison with FLamby gives: a row per method, BatchNorm policy, test set and seed."""

from typing import Literal

from pydantic import JsonValue

from fedmr_med.lab.flamby.request import CompareRequest, SetRequest
from fedmr_med.schema import Omitted, Strict

METRICS = {"balanced_accuracy": "balanced accuracy", "accuracy": "accuracy", "auc": "area under the ROC curve"}
"""The metrics of FLamby's classification datasets, in words."""


class Row(Strict):
    """The score of one model on one test set, by the one metric of the dataset.

    Attributes:
        source: whose code trained it; ``published`` are the numbers in FLamby's repository.
        bn: what became of BatchNorm statistics: ``average``, ``first``, or ``own`` where nothing is merged.
        test: ``pooled``, or the site whose test images it is scored on.
        balanced_accuracy: over the classes present in the test set.
        seed: None for published numbers, which are means over seeds with the deviation ``std``.
        images: size of the test set.
        settings: coefficients and learning rates.
        differs: in what the published numbers were made differently.
    """

    method: str
    source: Literal["ours", "flamby", "published"]
    bn: str
    test: str
    balanced_accuracy: Omitted[float] = None
    accuracy: Omitted[float] = None
    auc: Omitted[float] = None
    seed: int | None
    images: Omitted[int] = None
    settings: Omitted[dict[str, JsonValue]] = None
    std: Omitted[float] = None
    differs: Omitted[tuple[str, ...]] = None

    @property
    def metric(self) -> str:
        """One of :data:`METRICS`."""
        return next(name for name in METRICS if getattr(self, name) is not None)

    @property
    def score(self) -> float:
        """The value of the metric."""
        value: float = getattr(self, self.metric)
        return value


class RunRows(Strict):
    """The result of one run: its rows, or why it failed."""

    rows: tuple[Row, ...] = ()
    error: Omitted[str] = None


class FlambyResults(Strict):
    """The content of ``results.json``.

    Attributes:
        rows: ours, FLamby's and the published ones.
        missing, how_to_get: what needs FLamby, if it is not installed, and how to install it.
        failed: the runs that failed, with the reason.
        notes: what a reader has to know besides the numbers.
        updates: local updates of a round.
    """

    rows: tuple[Row, ...]
    missing: tuple[str, ...]
    how_to_get: str
    failed: tuple[str, ...]
    notes: tuple[str, ...]
    updates: int
    request: CompareRequest | SetRequest
