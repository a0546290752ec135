"""A chain in the coordinator's hands: a job and its follow-ups, each resuming where the last one ended.

What was submitted is kept in the coordinator's own kit, in ``chains/<id>/``, so that a follow-up can be made
without the folder the job came from. A chain's id is the id of its first job, unless the job names one.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedmr_med.config import JOB_FILE, JobConfig, load_job
from fedmr_med.deploy.kit import read_json
from fedmr_med.deploy.session import Session
from fedmr_med.errors import ConfigError, DeployError
from fedmr_med.files import write_text
from fedmr_med.jobs.changes import change
from fedmr_med.schema import dump_yaml

_JOBS = "jobs.json"


def submit(
    session: Session,
    source: Path,
    *,
    sites: tuple[str, ...] = (),
    changes: Mapping[str, Any] | None = None,
    demo: bool = False,
) -> str:
    """Submit a job folder as the first job of a chain.

    The folder is sent as it is but for ``custom/``, unless hospitals or settings are changed.

    Args:
        session: connection of the person who submits.
        source: a folder written by ``fedmr-med jobs write``.
        sites: hospitals to take, instead of all the job names.
        changes: settings of the job to replace, by dotted key.
        demo: apply the job's settings for generated pictures.

    Returns:
        The id of the chain.

    Raises:
        ConfigError: the folder is not a job, or a setting does not exist.
        DeployError: the server does not take it.
    """

    def adapted(job: JobConfig) -> JobConfig:
        job = job.for_demo() if demo else job
        return change(job, changes or {}).model_copy(update={"demo": job.demo})

    with tempfile.TemporaryDirectory() as folder:
        adapt = adapted if demo or changes else None
        staged = stage(source, Path(folder) / source.resolve().name, sites=sites, adapt=adapt)
        job = session.submit(staged)
        chain = _settings(staged).chain or job
        shutil.copytree(staged, _folder(session.kit, chain) / "job" / staged.name, dirs_exist_ok=True)
    _record(session.kit, chain, job)
    return chain


def resume(session: Session, chain: str) -> str:
    """Submit a follow-up that resumes after the chain's last complete round; return its job id.

    Raises:
        ConfigError: nothing is known of the chain.
        DeployError: the server does not take the job.
    """
    jobs(session.kit, chain)
    (source,) = (_folder(session.kit, chain) / "job").iterdir()
    with tempfile.TemporaryDirectory() as folder:
        staged = stage(source, Path(folder) / source.name, adapt=lambda job: job.model_copy(update={"chain": chain}))
        job = session.submit(staged)
    _record(session.kit, chain, job)
    return job


def stage(
    source: Path,
    target: Path,
    *,
    sites: tuple[str, ...] = (),
    adapt: Callable[[JobConfig], JobConfig] | None = None,
) -> Path:
    """Copy a job folder without ``custom/`` and without earlier signatures.

    Args:
        source: the job folder.
        target: the copy.
        sites: hospitals to take, instead of all the job names.
        adapt: changes the job's settings.

    Raises:
        ConfigError: the folder is not a job, a hospital is not one of its own, or a setting does not exist.
    """
    meta = read_json(source / "meta.json")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("custom", ".__nvfl*"))
    for app, named in meta["deploy_map"].items():
        unknown = [site for site in sites if site not in named]
        if unknown:
            raise ConfigError(f"{source / 'meta.json'}: the job does not name the hospital {unknown[0]!r}.")
        if sites:
            meta["deploy_map"][app] = ["server", *sites]
    if adapt:
        for path in target.glob(f"*/config/{JOB_FILE}"):
            job = adapt(load_job(path))
            meta["min_clients"] = job.federation.min_sites
            write_text(path, dump_yaml(job))
    if sites or adapt:
        write_text(target / "meta.json", json.dumps(meta, indent=2) + "\n")
    return target


def jobs(kit: Path, chain: str) -> list[str]:
    """Return the ids of the chain's jobs, first to last.

    Raises:
        ConfigError: the kit knows no such chain.
    """
    path = _folder(kit, chain) / _JOBS
    if not path.exists():
        raise ConfigError(f"{path} does not exist: this kit has not submitted the chain {chain!r}.")
    return list(read_json(path))


def settings(kit: Path, chain: str) -> JobConfig:
    """Return the settings of the chain's job."""
    (source,) = (_folder(kit, chain) / "job").iterdir()
    return _settings(source)


def download(session: Session, chain: str, out: Path) -> Path:
    """Fetch model, checkpoint and results of a chain from its last job; return the folder.

    Raises:
        DeployError: the job has not left any, or the server does not answer.
    """
    job = jobs(session.kit, chain)[-1]
    with tempfile.TemporaryDirectory() as folder:
        results = session.download(job, Path(folder)) / "workspace"
        found = [path for path in (results / name for name in RESULT_FILES) if path.exists()]
        if not found:
            raise DeployError(f"The job {job} left no model. `fedmr-med deploy watch {chain} --resume` resumes it.")
        out.mkdir(parents=True, exist_ok=True)
        for path in found:
            shutil.copy2(path, out / path.name)
    return out


RESULT_FILES = ("checkpoint.pt", "best_model.pt", "results.json")


def _settings(folder: Path) -> JobConfig:
    (path,) = folder.glob(f"*/config/{JOB_FILE}")
    return load_job(path)


def _folder(kit: Path, chain: str) -> Path:
    return kit / "chains" / chain


def _record(kit: Path, chain: str, job: str) -> None:
    path = _folder(kit, chain) / _JOBS
    known = list(read_json(path)) if path.exists() else []
    write_text(path, json.dumps([*known, job]) + "\n")
