"""Writing FLARE job folders: the same few FLARE files for every job, and its ``fedmr.yaml``."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmr_med.config import JOB_FILE, JobConfig
from fedmr_med.data.flamby_isic import CLASS_NAMES, HOSPITALS
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_text
from fedmr_med.methods.coefficients import coefficients
from fedmr_med.protocols import PROTOCOLS, benchmark_job, benchmark_sites, change, clients_of
from fedmr_med.schema import dump_yaml, validated
from fedmr_med.sites import SITE_FILE

CUSTOM_README = """This folder carries no code. A job that has a custom folder may name classes outside FLARE's own
list in `nvflare simulator`. A provisioned federation lists the classes at each site instead, and the job is
sent without this folder.
"""

# The datasets of the paper's headline, which have a job for FedAvg as well.
ISIC = "isic2019"
TWO_METHODS = (ISIC, "cifar10", "cifar100", "svhn", "fmnist")


def isic_job(method: str) -> JobConfig:
    """Return the Fed-ISIC2019 job of a method, with FLamby's protocol and, on the demo, a budget for two CPU cores."""
    return JobConfig.model_validate(
        {
            "name": f"isic_{method}",
            "task": {
                "dataset": ISIC,
                "class_names": CLASS_NAMES,
                "image_size": 200,
                "transform": "isic",
            },
            "model": {"name": "efficientnet_b0", "options": {"head": "fedmr", "pretrained": "none"}},
            "method": {"name": method, "options": coefficients(ISIC, None, method)},
            "loss": {"name": "focal", "gamma": 2.0, "class_weights": "flamby"},
            "train": {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "batch_size": 64, "updates": 100},
            "federation": {"rounds": 9, "min_sites": 6},
            # A few minutes on two cores, from scratch. FLamby's class weights are made from the real class counts,
            # which the demo does not have; its pictures vary enough without augmentation.
            "demo": {
                "task": {"image_size": 40},
                "model": {"options": {"bn_momentum": 0.1, "dropout": 0.0, "drop_connect": 0.0}},
                "loss": {"name": "cross_entropy", "class_weights": "none"},
                "train": {
                    "optimizer": "adam",
                    "lr": 0.001,
                    "batch_size": 16,
                    "updates": None,
                    "epochs": 3,
                    "augment": False,
                },
                "federation": {"rounds": 7},
            },
        }
    )


def write_job(job: JobConfig, folder: Path, sites: Mapping[str, str]) -> None:
    """Write a FLARE job folder.

    Args:
        job: its settings.
        folder: where to write it; a job that is there is replaced.
        sites: content of ``site.yaml`` of each site, by name; carried for the simulator, where a site has no
            folder of its own.

    Raises:
        ConfigError: the folder exists and is not a job.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / "meta.json").exists():
        raise ConfigError(f"{folder} exists and is not a job folder; choose another one.")
    shutil.rmtree(folder, ignore_errors=True)
    config = folder / "app" / "config"
    meta = {
        "name": job.name,
        "resource_spec": {},
        "min_clients": job.federation.min_sites,
        "deploy_map": {"app": ["server", *sites]},
    }
    _write_json(folder / "meta.json", meta)
    _write_json(config / "config_fed_server.json", _SERVER)
    _write_json(config / "config_fed_client.json", _CLIENT)
    write_text(config / JOB_FILE, dump_yaml(job))
    for site, content in sites.items():
        write_text(config / "sites" / site / SITE_FILE, content)
    write_text(folder / "app" / "custom" / "README", CUSTOM_README)


def isic_sites(sites: Path) -> dict[str, str]:
    """Return the ``site.yaml`` of the six hospitals below a sites folder.

    Raises:
        ConfigError: one of them is missing.
    """
    content = {}
    for hospital in HOSPITALS:
        path = sites / hospital / SITE_FILE
        if not path.is_file():
            raise ConfigError(f"{path} does not exist; --sites must name a folder with one folder per hospital.")
        content[hospital] = path.read_text(encoding="utf-8")
    return content


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
    """Return a job on any dataset: ``isic2019``, or one of :data:`fedmr_med.protocols.PROTOCOLS`.

    The arguments are those of :func:`fedmr_med.protocols.benchmark_job`; ``demo`` starts from the settings for the
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


_SERVER = {
    "format_version": 2,
    "workflows": [{"id": "controller", "path": "fedmr_med.flare.controller.FedMRController", "args": {}}],
    "components": [
        {"id": "persistor", "path": "fedmr_med.flare.persistor.ChainPersistor", "args": {}},
        {"id": "shareable_generator", "path": "fedmr_med.flare.generator.FedMRShareableGenerator", "args": {}},
        {"id": "aggregator", "path": "fedmr_med.flare.aggregator.PrototypeAggregator", "args": {}},
    ],
}
_CLIENT = {
    "format_version": 2,
    "executors": [
        {
            "tasks": ["train", "validate", "submit_model"],
            "executor": {"path": "fedmr_med.flare.executor.FedMRExecutor", "args": {}},
        }
    ],
    "components": [],
}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")
