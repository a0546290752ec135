"""A job on any dataset, and the jobs of the paper."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig, merge
from fedmr_med.data.datasets import DATASETS, Dataset
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.benchmark import benchmark_sites, clients_of
from fedmr_med.jobs.changes import change
from fedmr_med.jobs.coefficients import default_options
from fedmr_med.jobs.presets import own_changes, resolve
from fedmr_med.schema import dump_yaml, validated
from fedmr_med.sites import SITE_FILE

# From this many clients on, the paper draws ten of them each round.
MANY_CLIENTS, DRAWN_CLIENTS = 50, 10

# The datasets of the paper's headline, which have a job for FedAvg as well.
TWO_METHODS = ("isic2019", "cifar10", "cifar100", "svhn", "fmnist")


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
    """Return a job on any dataset with the settings of its record: the paper's.

    Args:
        dataset: name of the dataset.
        method: name of a method, or of a preset in :mod:`fedmr_med.jobs.presets`. Its options are the paper's
            coefficients for the dataset and split, where known; FedMR is anchored, unless ``changes`` ask for
            ``variant: paper``.
        split: how the data is partitioned; None takes the paper's most class-disjoint split.
        clients: how many clients, where the split does not say.
        model: another network than the dataset's own.
        seed: seed of the model, the partition and all that follows.
        changes: other settings, nested like ``fedmr.yaml``, or with dotted keys as
            :func:`fedmr_med.jobs.changes.parse_settings` returns them; those with the name of a preset in front
            (``fedrs.logits.alpha``) are for that preset alone.
        name: name of the job; None makes one.
        demo: start from the settings for the dataset's demo.

    Raises:
        ConfigError: something is not known or not valid.
    """
    record = DATASETS.get(dataset)
    named, (method, preset) = method, resolve(method)
    changes = own_changes(named, changes or {})
    if record.sites and (split or clients):
        raise ConfigError(
            f"{dataset} is already partitioned by hospital; drop --split and --clients.",
            code="config.conflict",
            key="--split",
        )
    paper = record.protocol
    if preset.pictures_only and record.kind == "texts":
        raise ConfigError(
            f"{named} is for pictures, not for the texts of {dataset}.", code="config.conflict", key=named
        )
    split = split or paper.split
    number = clients_of(dataset, split, clients)
    drawn = DRAWN_CLIENTS if number >= MANY_CLIENTS else None
    other = model is not None and model != paper.model
    content = {
        "name": name or "_".join(filter(None, (record.short_name or dataset, named, split))),
        "task": {
            "dataset": dataset,
            "class_names": record.class_names,
            "image_size": record.image_size,
            "channels": record.channels,
            "transform": paper.transform,
            "split": split,
        },
        "model": {"name": model or paper.model, "options": {} if other else dict(paper.model_options)},
        "method": {"name": method, "options": default_options(dataset, split, method, changes)},
        "train": {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "batch_size": 128, "epochs": 10},
        "federation": {
            "rounds": paper.rounds_by_clients.get(number, paper.rounds),
            "sites_per_round": drawn,
            "min_sites": drawn or number,
            # The clients of a benchmark are all our own, and methods are compared as they were published.
            **({} if record.sites else {"max_deviation": None}),
        },
        "seed": seed,
    }
    job = validated(JobConfig, content, f"the job for {dataset}").override(dict(paper.settings))
    # Options of a network are for that network alone, and one that was asked for stays.
    settings, on_demo = dict(preset.settings), dict(preset.demo)
    if record.kind == "images" and preset.small_images is not None and model is None:
        settings |= preset.small_images
    if model is not None:
        settings, on_demo = _for_any_network(settings), _for_any_network(on_demo)
    on_demo = merge({key: value for key, value in paper.demo.items() if not (other and key == "model")}, on_demo)
    job = job.override(settings)
    job = job.override(on_demo) if demo else job.model_copy(update={"demo": on_demo})
    return change(job, changes)


def _for_any_network(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the name and the options of a network."""
    kept = {key: value for key, value in settings.get("model", {}).items() if key not in ("name", "options")}
    return {key: value for key, value in settings.items() if key != "model"} | ({"model": kept} if kept else {})


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
        share: share of the clients that share their prototypes; hospitals with their own data decide themselves.
        sites: folder with one folder per hospital, for a dataset whose hospitals hold their own data.

    Raises:
        ConfigError: something is not known or not valid.
    """
    job = job_for(dataset, method, clients=clients, **arguments)
    record = DATASETS.get(dataset)
    if record.sites:
        if share != 1:
            raise ConfigError(
                f"The hospitals of {dataset} decide for themselves what they share: edit their site.yaml.",
                code="config.conflict",
                key="share",
            )
        return job, _site_files(record, sites)
    configs = benchmark_sites(clients_of(dataset, job.task.split, clients), share=share, seed=job.seed)
    return job, {site: dump_yaml(config) for site, config in configs.items()}


def _site_files(dataset: Dataset, sites: Path) -> dict[str, str]:
    """Return the ``site.yaml`` of the hospitals of a dataset, below a sites folder."""
    content = {}
    for hospital in dataset.sites:
        path = sites / hospital / SITE_FILE
        if not path.is_file():
            raise ConfigError(
                f"{path} does not exist; --sites must name a folder with one folder per hospital.",
                code="file.missing",
                key="--sites",
            )
        content[hospital] = path.read_text(encoding="utf-8")
    return content


def paper_jobs(sites: Path) -> list[tuple[JobConfig, dict[str, str]]]:
    """Return the jobs that ``make jobs`` writes: each dataset of the paper with its settings, and the one-shot job.

    Args:
        sites: folder with one folder per hospital.
    """
    jobs = [(dataset, method) for dataset in TWO_METHODS for method in ("fedmr", "fedavg")]
    jobs += [(dataset, "fedmr") for dataset in ("hyperkvasir", "odir", "shakespeare")] + [("isic2019", "oneshot")]
    return [
        any_job(dataset, method, name=f"{DATASETS.get(dataset).short_name or dataset}_{method}", sites=sites)
        for dataset, method in jobs
    ]
