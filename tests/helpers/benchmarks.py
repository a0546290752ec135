"""A small benchmark federation, for tests: a mini Fashion-MNIST in its official format and a small network."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold
from fedmr_med.evaluation.results import RunResult
from fedmr_med.jobs.benchmark import benchmark_sites, clients_of
from fedmr_med.jobs.catalog import job_for
from fedmr_med.lab.bench.request import BenchRequest
from fedmr_med.lab.datasets.benchmark import load_test
from fedmr_med.runner import Federation
from fedmr_med.server.state import GlobalState

# So few features and steps that a round of five clients takes a tenth of a second.
TINY = {
    "model.options": {"width": 4, "feature_size": 16},
    "train.updates": 2,
    "train.batch_size": 8,
    "federation.rounds": 3,
}


def tiny_job(method: str = "fedmr", /, split: str = "P5C2", **arguments: Any) -> JobConfig:
    """Return a job on Fashion-MNIST of two steps a round."""
    changes = TINY | arguments.pop("changes", {})
    return job_for("fmnist", method, split=split, model="small_cnn", changes=changes, **arguments)


def tiny_federation(
    job: JobConfig, data: Path, folder: Path, *, central: bool = True, share: float = 1, **options: Any
) -> Federation:
    """Return the federation of a job on the data in ``data``; ``central`` scores models at the server."""
    clients = clients_of(job.task.dataset, job.task.split)
    sites = benchmark_sites(clients, root=data, share=share, seed=job.seed, holds_test=not central)
    test: Fold | None = load_test(sites["client-1"].data, job.task, seed=job.seed) if central else None
    return Federation(job, sites, folder, test=test, **options)


def equal_states(a: GlobalState, b: GlobalState) -> bool:
    """Compare all that the rounds made; times are none of it."""
    first, second = ((*s.model.items(), *s.method.items(), *s.averaged.items()) for s in (a, b))
    arrays = zip(first, second, strict=True)
    return (
        all(n == m and np.array_equal(x, y) for (n, x), (m, y) in arrays)
        and np.array_equal(a.prototypes.means, b.prototypes.means)
        and a.accepted == b.accepted
        and a.history.evaluations == b.history.evaluations
    )


def request_for(data: Path, methods: tuple[str, ...] = ("fedavg", "fedmr"), **changes: Any) -> BenchRequest:
    """Return the request for a comparison on Fashion-MNIST of two steps a round."""
    settings = TINY | changes.pop("settings", {})
    content = {"dataset": "fmnist", "data": data, "methods": methods, "model": "small_cnn", "settings": settings}
    return BenchRequest.model_validate(content | changes)


def without_times(results: Iterable[RunResult]) -> list[dict[str, Any]]:
    """Drop what no two runs have in common: how long they took."""
    timed = {"seconds", "local_seconds", "head_seconds", "engine_ms_per_task"}
    return [
        {key: value for key, value in run.items() if key not in timed | {"rounds"}}
        | {"rounds": [{k: v for k, v in record.items() if k not in timed} for record in run["rounds"]]}
        for run in (result.model_dump() for result in results)
    ]
