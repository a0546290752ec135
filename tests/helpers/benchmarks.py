"""A small benchmark federation, for tests: a mini Fashion-MNIST in its official format and a small network."""

from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold
from fedmr_med.jobs.benchmark import benchmark_sites, clients_of
from fedmr_med.jobs.catalog import job_for
from fedmr_med.lab.datasets.benchmark import load_test
from fedmr_med.runner import Federation

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
