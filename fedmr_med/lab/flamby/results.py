"""What a comparison with FLamby gives: a row per method, BatchNorm policy, test set and seed."""

from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from fedmr_med.lab.flamby.job import UPDATES
from fedmr_med.lab.flamby.request import CompareRequest
from fedmr_med.schema import Omitted, Strict


class Row(Strict):
    """The score of one model on one test set.

    Attributes:
        method: what tables call it.
        source: whose code trained it; ``published`` are the numbers in FLamby's repository.
        bn: what became of BatchNorm statistics: ``average``, ``first``, or ``own`` where nothing is merged.
        test: ``pooled``, or the site whose test images it is scored on.
        balanced_accuracy: over the classes present in the test set.
        seed: None for published numbers, which are means.
        images: size of the test set.
        settings: coefficients and learning rates.
        std: standard deviation of a published number.
        differs: in what the published numbers were made differently.
    """

    method: str
    source: Literal["ours", "flamby", "published"]
    bn: str
    test: str
    balanced_accuracy: float
    seed: int | None
    images: Omitted[int] = None
    settings: Omitted[dict[str, JsonValue]] = None
    std: Omitted[float] = None
    differs: Omitted[tuple[str, ...]] = None


class RunRows(Strict):
    """The result of one run: its rows, or why it failed."""

    rows: tuple[Row, ...] = ()
    error: Omitted[str] = None


class FlambyResults(Strict):
    """The content of ``results.json``.

    Attributes:
        rows: ours, FLamby's and the published ones.
        missing: what needs FLamby, if it is not installed.
        how_to_get: how to install it, or "".
        failed: the runs that failed, with the reason.
        notes: what a reader has to know besides the numbers.
        updates: local updates of a round.
        request: what was asked for.
    """

    rows: tuple[Row, ...]
    missing: tuple[str, ...]
    how_to_get: str
    failed: tuple[str, ...]
    notes: tuple[str, ...]
    updates: int
    request: CompareRequest


class SetRequest(Strict):
    """What to compare.

    Attributes:
        dataset: FLamby's name of it.
        data: folder of its data; None takes what FLamby's own configuration says.
        methods: names of this package's methods.
        rounds: None takes FLamby's.
        updates: local updates of a round.
        seeds: every method is run with every seed.
        flamby: a FLamby checkout; None takes ``FEDMR_MED_FLAMBY``, or the installed package.
    """

    dataset: str
    data: Path | None = None
    methods: tuple[str, ...] = Field(("fedavg", "fedmr"), min_length=1)
    rounds: int | None = Field(None, ge=1)
    updates: int = Field(UPDATES, ge=1)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    flamby: Path | None = None


class SetResults(Strict):
    """The content of ``results.json``.

    Attributes:
        rows: the score of each method, seed and test set.
        notes: what a reader has to know besides the numbers.
        request: what was asked for.
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    request: SetRequest
