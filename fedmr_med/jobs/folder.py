"""Writing FLARE job folders: the same few FLARE files for every job, and its ``fedmr.yaml``."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedmr_med.arrays import Arrays
from fedmr_med.config import JOB_FILE, JobConfig, load_job
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_json, write_text
from fedmr_med.schema import dump_yaml, read_yaml, validated
from fedmr_med.server.state import with_weights
from fedmr_med.sites import SITE_FILE, SiteConfig, load_site
from fedmr_med.wire.kinds import TASKS

INITIAL_MODEL = "initial_model.pt"
SERVER_APP = "app_with_weights"
ALL_SITES = "@ALL"
"""FLARE's name for the server and every site that is connected."""

_JOBS = Path("jobs")

CUSTOM_README = """This folder carries no code. A job that has a custom folder may name classes outside FLARE's own
list in `nvflare simulator`. A provisioned federation lists the classes at each site instead, and the job is
sent without this folder.
"""


def write_job(
    job: JobConfig,
    folder: Path,
    sites: Mapping[str, str | None],
    *,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
    initial_model: Path | None = None,
) -> None:
    """Write a FLARE job folder.

    Args:
        job: its settings.
        folder: where to write it; a job that is there is replaced.
        sites: content of ``site.yaml`` of each site, by name; carried for the simulator, where a site has no
            folder of its own. None carries none; without names the job is for all sites that are connected.
        server, client: content of FLARE's two configuration files, where they hold more than our own parts.
        initial_model: a file with the weights to start from, which the job names in ``model.weights``, and carries to
            the server; to the sites as well where they are not named.

    Raises:
        ConfigError: the folder exists and is not a job.
    """
    if initial_model is not None:
        job = with_weights(job, initial_model)
    if folder.exists() and any(folder.iterdir()) and not (folder / "meta.json").exists():
        raise ConfigError(f"{folder} exists and is not a job folder; choose another one.", code="file.foreign")
    shutil.rmtree(folder, ignore_errors=True)
    config = folder / "app" / "config"
    write_json(config / "config_fed_server.json", server or SERVER_PARTS)
    write_json(config / "config_fed_client.json", client or CLIENT_PARTS)
    write_text(config / JOB_FILE, _heading(job) + dump_yaml(job, defaults=False))
    for site, content in sites.items():
        if content is not None:
            write_text(config / "sites" / site / SITE_FILE, content)
    write_text(folder / "app" / "custom" / "README", CUSTOM_README)
    deploy_map = {"app": ["server", *sites] if sites else [ALL_SITES]}
    if initial_model is not None:
        if sites:  # weights go to the server only; FLARE has no such map for sites that are not named
            shutil.copytree(folder / "app", folder / SERVER_APP)
            deploy_map = {"app": [*sites], SERVER_APP: ["server"]}
        shutil.copyfile(initial_model, folder / (SERVER_APP if sites else "app") / "config" / INITIAL_MODEL)
    meta = {
        "name": job.name,
        "resource_spec": {},
        "min_clients": job.federation.min_sites,
        "deploy_map": deploy_map,
    }
    write_json(folder / "meta.json", meta)


def write_job_with(arrays: Arrays, job: JobConfig, folder: Path, sites: Mapping[str, str | None]) -> None:
    """Write a job folder that carries these weights, see :func:`write_job`."""
    import torch

    with TemporaryDirectory() as name:
        weights = Path(name) / INITIAL_MODEL
        torch.save({key: torch.from_numpy(array) for key, array in arrays.items()}, weights)
        write_job(job, folder, sites, initial_model=weights)


def find_job(job: Path, where: str) -> JobConfig:
    """Read the job of a folder, or of one in ``jobs/`` by its name; ``where`` is the option that names it.

    Raises:
        ConfigError: there is no such folder, or its settings are not valid.
    """
    folder = next((path for path in (job, _JOBS / job) if path.is_dir()), None)
    if folder is None:
        raise ConfigError(
            f"{where} {job} is neither a job folder nor one in {_JOBS}/.", code="config.unknown-name", key=where
        )
    return job_in(folder)


def copy_job(source: Path, target: Path, adapt: Callable[[JobConfig], JobConfig], *left_out: str) -> JobConfig:
    """Copy a job folder without FLARE's signatures and what is left out; return the job, adapted in all its apps."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".__nvfl*", *left_out))
    job = job_in(source)
    adapted = adapt(job)
    for path in target.glob(f"*/config/{JOB_FILE}") if adapted != job else ():
        write_text(path, dump_yaml(adapted, defaults=False))
    return adapted


def job_in(folder: Path) -> JobConfig:
    """Read the job of a folder, the same in all its apps; raise ConfigError if it has none, or it is not valid."""
    return load_job(min(folder.glob(f"*/config/{JOB_FILE}"), default=folder / "app" / "config" / JOB_FILE))


def carried(sites: Mapping[str, SiteConfig]) -> dict[str, str]:
    """Return the ``site.yaml`` that a job carries for the simulator, which copies it elsewhere: all paths absolute."""
    return {name: dump_yaml(site) for name, site in sites.items()}


def carried_file(path: Path) -> str:
    """Return what a job carries of a ``site.yaml``: the file itself, unless one of its paths would lead elsewhere.

    Raises:
        ConfigError: it is not valid.
    """
    site = load_site(path)
    as_written = validated(SiteConfig, read_yaml(path), str(path))
    return path.read_text(encoding="utf-8") if site == as_written else dump_yaml(site)


def sites_below(folder: Path, where: str) -> dict[str, str]:
    """Return what a job carries of the sites that have a folder with a ``site.yaml`` below this one.

    Raises:
        ConfigError: there are none, or one is not valid; ``where`` is the option that names the folder.
    """
    found = {path.parent.name: carried_file(path) for path in sorted(folder.glob(f"*/{SITE_FILE}"))}
    if not found:
        raise ConfigError(f"{folder} has no folder with a {SITE_FILE} in it.", code="site.none", key=where)
    return found


def _heading(job: JobConfig) -> str:
    """Return the comment that a job file begins with: what the job decides, in one line."""
    task, rounds = job.task, job.federation.rounds
    data = task.dataset if task.split is None else f"{task.dataset}, partitioned {task.split}"
    amount = f"{rounds} rounds" if rounds else "one exchange, no training"
    what = f"A survey of {data}" if job.survey else f"{job.method.name} on {data}, with {job.model.name}"
    return f"# {what}: {amount}.\n# The job says what it decides; `fedmr-med jobs show` prints every setting.\n"


SERVER_PARTS: Mapping[str, Any] = {
    "format_version": 2,
    "workflows": [{"id": "controller", "path": "fedmr_med.flare.controller.FedMRController", "args": {}}],
    "components": [],
}
CLIENT_PARTS: Mapping[str, Any] = {
    "format_version": 2,
    "executors": [
        {
            "tasks": list(TASKS),
            "executor": {"path": "fedmr_med.flare.executor.FedMRExecutor", "args": {}},
        }
    ],
    "components": [],
}
