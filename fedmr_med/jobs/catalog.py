"""A job on any dataset, and the jobs of the ``jobs/`` folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.benchmark import PROTOCOLS, benchmark_job, benchmark_sites, clients_of
from fedmr_med.jobs.changes import change
from fedmr_med.jobs.isic import ISIC, isic_job, isic_sites
from fedmr_med.schema import dump_yaml, validated

# The datasets of the paper's headline, which have a job for FedAvg as well.
TWO_METHODS = (ISIC, "cifar10", "cifar100", "svhn", "fmnist")


def job_for(
    dataset: str,
    method: str,
    *,
    split: str | None = None,
    clients: int | None = None,
    model: str | None = None,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    name: str | None = None,
    demo: bool = False,
) -> JobConfig:
    """Return a job on any dataset: ``isic2019``, or one of :data:`fedmr_med.jobs.benchmark.PROTOCOLS`.

    The arguments are those of :func:`fedmr_med.jobs.benchmark.benchmark_job`; ``demo`` starts from the settings for the
    demo of ISIC2019.

    Raises:
        ConfigError: something is not known or not valid.
    """
    if dataset != ISIC:
        return benchmark_job(
            dataset, method, split=split, clients=clients, model=model, seed=seed, changes=changes, name=name
        )
    if split or clients:
        raise ConfigError("isic2019 is not dealt: its hospitals hold their own data.")
    base = isic_job(method).for_demo() if demo else isic_job(method)
    other = {"name": name or base.name, "seed": seed} | ({"model": {"name": model}} if model else {})
    job = validated(JobConfig, base.model_dump(mode="json") | other, "the job for isic2019")
    return change(job, changes or {})


def any_job(
    dataset: str,
    method: str,
    *,
    share: float = 1.0,
    sites: Path = Path("sites"),
    clients: int | None = None,
    **arguments: Any,
) -> tuple[JobConfig, dict[str, str]]:
    """Return a job on any dataset, and the ``site.yaml`` of its sites.

    Args:
        dataset, method, clients, arguments: see :func:`job_for`.
        share: share of the clients that share their prototypes; the hospitals of ISIC2019 decide themselves.
        sites: folder with one folder per hospital, for ``isic2019``.

    Raises:
        ConfigError: something is not known or not valid.
    """
    job = job_for(dataset, method, clients=clients, **arguments)
    if dataset == ISIC:
        if share != 1:
            raise ConfigError("The hospitals of isic2019 decide for themselves what they share: edit their site.yaml.")
        return job, isic_sites(sites)
    configs = benchmark_sites(clients_of(dataset, job.task.split, clients), share=share, seed=job.seed)
    return job, {site: dump_yaml(config) for site, config in configs.items()}


def checked_in(sites: Path) -> list[tuple[JobConfig, dict[str, str]]]:
    """Return the jobs of the ``jobs/`` folder: each dataset with the paper's settings."""
    jobs = [(dataset, method) for dataset in TWO_METHODS for method in ("fedmr", "fedavg")]
    jobs += [(dataset, "fedmr") for dataset in PROTOCOLS if dataset not in TWO_METHODS]
    names = {ISIC: "isic"}
    return [any_job(d, method, name=f"{names.get(d, d)}_{method}", sites=sites) for d, method in jobs]
