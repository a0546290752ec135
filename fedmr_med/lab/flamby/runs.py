"""What all runs of a comparison with FLamby are: who trains, by what, and which of them there are."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from fedmr_med.lab.flamby.request import LOCAL, POOLED, Buffers, CompareRequest, SetRequest
from fedmr_med.lab.flamby.results import RunRows

CHECKPOINTS = "federation"

Source = Literal["ours", "flamby"]


@dataclass(frozen=True)
class Training:
    """One training of a comparison, by a method of this package or a strategy of FLamby.

    Attributes:
        source: whose code trains.
        method: its name; ``local`` and ``pooled`` are trained without a federation.
        seed: of model, order, augmentation and dropout.
        policies: what becomes of BatchNorm statistics, where that is a choice.
        center: of ``local``.
    """

    request: CompareRequest | SetRequest
    source: Source
    method: str
    seed: int
    policies: tuple[Buffers, ...] = ()
    center: int | None = None

    @property
    def label(self) -> str:
        """What tables call it."""
        if self.method == LOCAL:
            return f"Local {self.center}"
        return "Pooled Training" if self.method == POOLED else self.method

    @property
    def federated(self) -> bool:
        """Whether several centres train one model."""
        return self.method not in (LOCAL, POOLED)

    @property
    def title(self) -> str:
        """What progress and messages call it."""
        return ", ".join((self.label, *self.policies, f"seed {self.seed}"))

    @property
    def name(self) -> str:
        """Name of its folder."""
        parts = (self.source, self.label.replace(" ", "-").lower(), *self.policies, f"seed{self.seed}")
        return "-".join((*parts, self.request.digest()))

    @property
    def result_type(self) -> type[RunRows]:
        """The model of its result."""
        return RunRows

    def failed(self, error: str) -> RunRows:
        """See :class:`fedmr_med.lab.comparison.runs.Run`."""
        return RunRows(error=error)

    def clean_up(self, folder: Path) -> None:
        """Remove checkpoints; only the scores stay."""
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


T = TypeVar("T", bound=Training)


def planned(
    kind: type[T],
    request: CompareRequest | SetRequest,
    alone: Source,
    centers: Sequence[int],
    strategies: Sequence[str],
    policies: tuple[Buffers, ...] = (),
) -> list[T]:
    """Return all trainings of a comparison.

    ``alone`` is whose code trains the ``centers``, each without a federation. Of the ``policies`` for BatchNorm
    statistics, our methods are trained once for each, a strategy of FLamby once for all.
    """
    each: list[tuple[Buffers, ...]] = [(policy,) for policy in policies] or [()]
    made: list[T] = []
    for seed in request.seeds:
        for method in request.methods:
            if method == LOCAL:
                made += [kind(request, alone, LOCAL, seed, center=center) for center in centers]
            elif method == POOLED:
                made.append(kind(request, alone, POOLED, seed))
            else:
                made += [kind(request, "ours", method, seed, own) for own in each]
        made += [kind(request, "flamby", strategy, seed, policies) for strategy in strategies]
    return made
