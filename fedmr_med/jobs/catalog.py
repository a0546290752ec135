"""The settings of jobs: on any dataset, on data of one's own, and the jobs of the paper."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig, merge
from fedmr_med.data.datasets import DATASETS, Dataset
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.benchmark import benchmark_sites, clients_of
from fedmr_med.jobs.changes import change
from fedmr_med.jobs.coefficients import default_options
from fedmr_med.jobs.folder import carried_file
from fedmr_med.jobs.presets import own_changes, resolve
from fedmr_med.schema import dump_yaml, validated
from fedmr_med.sites import SITE_FILE

# From this many clients on, the paper draws ten of them each round.
MANY_CLIENTS, DRAWN_CLIENTS = 50, 10

# The datasets of the paper's headline, which have a job for FedAvg as well.
TWO_METHODS = ("isic2019", "cifar10", "cifar100", "svhn", "fmnist")

# What a task of one's own need not say.
_OWN_TASK = {"dataset": "own", "image_size": 64, "transform": "plain"}


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
    record, preset = DATASETS.get(dataset), resolve(method)[1]
    if record.sites and (split or clients):
        raise ConfigError(
            f"{dataset} is already partitioned by hospital; drop --split and --clients.",
            code="config.conflict",
            key="--split",
        )
    paper = record.protocol
    if preset.pictures_only and record.kind == "texts":
        raise ConfigError(
            f"{method} is for pictures, not for the texts of {dataset}.", code="config.conflict", key=method
        )
    split = split or paper.split
    number = clients_of(dataset, split, clients)
    drawn = DRAWN_CLIENTS if number >= MANY_CLIENTS else None
    other = model is not None and model != paper.model
    sections = {
        "task": {
            "dataset": dataset,
            "class_names": record.class_names,
            "image_size": record.image_size,
            "channels": record.channels,
            "transform": paper.transform,
            "split": split,
        },
        "model": {"name": model or paper.model, "options": {} if other else dict(paper.model_options)},
        "train": _sgd(batch_size=128, epochs=10),
        "federation": {
            "rounds": paper.rounds_by_clients.get(number, paper.rounds),
            "sites_per_round": drawn,
            "min_sites": drawn or number,
            # The clients of a benchmark are all our own, and methods are compared as they were published.
            **({} if record.sites else {"max_deviation": None}),
        },
        "seed": seed,
    }
    name = name or "_".join(filter(None, (record.short_name or dataset, method, split)))
    return _job(name, method, sections, changes or {}, own_network=model is not None, record=record, for_demo=demo)


def own_job(
    name: str,
    task: Mapping[str, Any],
    method: str,
    model: str,
    *,
    rounds: int = 2,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> JobConfig:
    """Return a job on data that no record describes: a hospital's own images, arrays or texts.

    Args:
        task: the task section; ``class_names`` must be there.
        name, method, model, rounds, seed, changes: as for :func:`job_for`.

    Raises:
        ConfigError: something is not known or not valid.
    """
    sections = {
        "task": {**_OWN_TASK, **task},
        "model": {"name": model},
        "train": _sgd(batch_size=32, epochs=1),
        "federation": {"rounds": rounds},
        "seed": seed,
    }
    return _job(name, method, sections, changes or {}, own_network=True)


def isic_job(method: str) -> JobConfig:
    """Return the Fed-ISIC2019 job of a method, with FLamby's split, loss and budget; the demo has its own."""
    return job_for("isic2019", method)


def _job(
    name: str,
    method: str,
    sections: Mapping[str, Any],
    changes: Mapping[str, Any],
    *,
    own_network: bool,
    record: Dataset | None = None,
    for_demo: bool = False,
) -> JobConfig:
    """Make a job: the one place where method, preset, data and changes come together, each on top of the former.

    Args:
        name, method, changes: see :func:`job_for`.
        sections: of the job, all but the method.
        own_network: whether the network was asked for, so that a preset leaves it.
        record: the dataset, whose settings come on top of the sections; None for data of one's own.
        for_demo: whether to start from the settings for the dataset's demo.
    """
    resolved, preset = resolve(method)
    own, task = own_changes(method, changes), sections["task"]
    options = default_options(task["dataset"], task.get("split"), resolved, own)
    content = {"name": name, "method": {"name": resolved, "options": options}, **sections}
    of_preset, demo_of_preset = dict(preset.settings), dict(preset.demo)
    if own_network:
        of_preset, demo_of_preset = _for_any_network(of_preset), _for_any_network(demo_of_preset)
    elif record and record.kind == "images" and preset.small_images is not None:
        of_preset |= preset.small_images
    job = validated(JobConfig, content, f"the job {name}")
    if record is None:
        return change(job.override(of_preset), own)
    job = job.override(dict(record.protocol.settings)).override(of_preset)
    # Options of a network are for that network alone.
    other = sections["model"]["name"] != record.protocol.model
    on_demo = {key: value for key, value in record.protocol.demo.items() if not (other and key == "model")}
    on_demo = merge(on_demo, demo_of_preset)
    return change(job.override(on_demo) if for_demo else job.model_copy(update={"demo": on_demo}), own)


def _sgd(**others: Any) -> dict[str, Any]:
    """Return local training to start from."""
    return {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9, **others}


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
    return job, {site: dump_yaml(config, defaults=False) for site, config in configs.items()}


def _site_files(dataset: Dataset, sites: Path) -> dict[str, str]:
    """Return the ``site.yaml`` of the hospitals of a dataset, below a sites folder."""
    content = {}
    for hospital in dataset.sites:
        path = sites / hospital / SITE_FILE
        if not path.is_file():
            raise ConfigError(
                f"{path} does not exist; --sites names a folder with one per hospital: `fedmr-med init` writes it.",
                code="file.missing",
                key="--sites",
            )
        content[hospital] = carried_file(path)
    return content


def paper_jobs(sites: Path) -> list[tuple[JobConfig, dict[str, str]]]:
    """Return the jobs that ``make jobs`` writes: each dataset of the paper with its settings, and the one-shot job."""
    jobs = [(dataset, method) for dataset in TWO_METHODS for method in ("fedmr", "fedavg")]
    jobs += [(dataset, "fedmr") for dataset in ("hyperkvasir", "odir", "shakespeare")] + [("isic2019", "oneshot")]
    return [
        any_job(dataset, method, name=f"{DATASETS.get(dataset).short_name or dataset}_{method}", sites=sites)
        for dataset, method in jobs
    ]
