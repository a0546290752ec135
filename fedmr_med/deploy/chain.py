"""A chain in the coordinator's hands: a job and its follow-ups, each resuming where the last one ended.

What was submitted is kept in the coordinator's own kit, in ``chains/<id>/``, so that a follow-up can be made
without the folder the job came from. A chain's id is the id of its first job, unless the job names one.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.deploy.acts import record
from fedmr_med.deploy.kit import read_json
from fedmr_med.deploy.session import CHAIN_PROPERTY, JobInfo, Session
from fedmr_med.errors import ConfigError, DeployError
from fedmr_med.files import write_json
from fedmr_med.jobs.changes import change
from fedmr_med.jobs.folder import ALL_SITES, copy_job, job_in

RESULT_FILES = ("checkpoint.pt", "best_model.pt", "results.json", "events.jsonl")


def submit(
    session: Session,
    source: Path,
    *,
    sites: tuple[str, ...] = (),
    changes: Mapping[str, Any] | None = None,
    demo: bool = False,
) -> str:
    """Submit a job folder as the first job of a chain, and return the chain's id.

    The folder is sent as it is but for ``custom/``, unless hospitals or settings are changed.

    Args:
        session: of the person who submits.
        source: the folder.
        sites: hospitals to take, instead of all the job names.
        changes: settings of the job to replace, by dotted key.
        demo: apply the job's settings for generated pictures.

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
        chain = job_in(staged).chain or job
        shutil.copytree(staged, _kept(session, chain) / staged.name, dirs_exist_ok=True)
    record(session.kit, "submit", chain=chain, job=job, name=staged.name, sites=sites, demo=demo, changes=changes or {})
    return chain


def resume(session: Session, chain: str, *, from_previous: bool = False) -> str:
    """Submit a follow-up that resumes after the chain's last complete round; return its job id.

    With ``from_previous`` it goes back to the checkpoint before the last one, if that is damaged.

    Raises:
        ConfigError: nothing is known of the chain.
        DeployError: the server does not take the job.
    """

    def adapted(job: JobConfig) -> JobConfig:
        start = {"resume_from": "previous" if from_previous else "last"}
        return job.model_copy(update={"chain": chain, "federation": job.federation.model_copy(update=start)})

    with tempfile.TemporaryDirectory() as folder:
        source = submitted(session, chain, Path(folder))
        job = session.submit(stage(source, Path(folder) / "staged" / source.name, adapt=adapted))
    record(session.kit, "resume", chain=chain, job=job)
    return job


@dataclass(frozen=True)
class Leaving:
    """A job that takes a hospital out of a chain.

    Attributes:
        job: its id.
        trained: whether the chain trains its weights, which no sum takes a hospital out of.
        secure: whether the hospital has to send its part of the total for it.
    """

    job: str
    trained: bool
    secure: bool


def withdraw(session: Session, chain: str, site: str) -> Leaving:
    """Submit a follow-up that takes a hospital out of the chain; it is not asked any more, in later ones neither.

    Raises:
        ConfigError: nothing is known of the chain.
        DeployError: the server does not take the job.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = submitted(session, chain, Path(folder))
        staged = stage_without(source, Path(folder) / "staged" / source.name, chain, site)
        federation = job_in(staged).federation
        follow_up = session.submit(staged)
        kept = _kept(session, chain)  # what later follow-ups are made from
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(staged, kept / staged.name, ignore=shutil.ignore_patterns(".__nvfl*"))
    record(session.kit, "withdraw", chain=chain, site=site, job=follow_up)
    return Leaving(follow_up, trained=federation.rounds > 0, secure=federation.sums_statistics)


def stage_without(source: Path, target: Path, chain: str, site: str) -> Path:
    """Copy a job folder as a follow-up that a hospital leaves in.

    It waits for the others alone. The one that leaves gets it only if it has to take its part out of a secure total.

    Raises:
        ConfigError: the folder is not a job.
    """

    def adapted(job: JobConfig) -> JobConfig:
        without = tuple(dict.fromkeys([*job.federation.without, site]))
        changes = {"resume_from": "last", "without": without}
        return job.model_copy(update={"chain": chain, "federation": job.federation.model_copy(update=changes)})

    staged = stage(source, target, adapt=adapted)
    federation = job_in(staged).federation
    meta = read_json(staged / "meta.json")
    named = {place for places in meta["deploy_map"].values() for place in places}
    if not federation.sums_statistics:
        meta["deploy_map"] = {app: [p for p in places if p != site] for app, places in meta["deploy_map"].items()}
    if ALL_SITES not in named:
        others = named - {"server", *federation.without}
        meta["min_clients"] = max(1, min(federation.min_sites, len(others)))
    write_json(staged / "meta.json", meta)
    return staged


def abort(session: Session, chain: str) -> str:
    """End the chain's job; its checkpoint stays. Return the job's id.

    Raises:
        ConfigError: the server knows no such chain.
        DeployError: it has ended already, or is somebody else's.
    """
    last = jobs(session, chain)[-1]
    if last.ended:
        raise DeployError(f"The last job of the chain {chain} has ended already ({last.status}).", code="chain.ended")
    session.abort(last.job)
    record(session.kit, "abort", chain=chain, job=last.job)
    return last.job


def stage(
    source: Path,
    target: Path,
    *,
    sites: tuple[str, ...] = (),
    adapt: Callable[[JobConfig], JobConfig] | None = None,
) -> Path:
    """Copy a job folder without ``custom/`` and without earlier signatures; for ``sites`` alone, and adapted.

    A quorum that the chosen hospitals cannot reach becomes all of them.

    Raises:
        ConfigError: the folder is not a job, a hospital is not one of its own, or a setting does not exist.
    """
    meta = read_json(source / "meta.json")
    named = {site for participants in meta["deploy_map"].values() for site in participants}
    if unknown := [site for site in sites if not {site, ALL_SITES} & named]:
        raise ConfigError(
            f"{source / 'meta.json'}: the job does not name the hospital {unknown[0]!r}.", code="site.unknown"
        )
    if sites:
        chosen = ("server", *sites)
        meta["deploy_map"] = {
            app: [site for site in chosen if {site, ALL_SITES} & set(participants)]
            for app, participants in meta["deploy_map"].items()
        }

    def adapted(job: JobConfig) -> JobConfig:
        changed = adapt(job) if adapt else job
        if not sites or len(sites) >= changed.federation.min_sites:
            return changed
        fewer = {"federation": {"min_sites": len(sites)}}
        return changed.override(fewer).model_copy(update={"demo": changed.demo})

    job = copy_job(source, target, adapted, "custom")
    if job.chain:
        meta["custom_props"] = {CHAIN_PROPERTY: job.chain}
    if job != job_in(source):
        meta["min_clients"] = job.federation.min_sites
    if sites or adapt:
        write_json(target / "meta.json", meta)
    return target


def jobs(session: Session, chain: str) -> list[JobInfo]:
    """Return the chain's jobs, first to last; raise ConfigError if the server knows no such chain."""
    own = [info for info in session.jobs() if info.chain == chain]
    if not own:
        raise ConfigError(
            f"The server {session.address} knows no chain {chain!r}; `deploy list` shows all.", code="chain.unknown"
        )
    # Anybody can name a chain in a job; those of others than its owner do not belong to it.
    return [info for info in own if info.owner == own[0].owner]


def shortage(info: JobInfo, connected: tuple[str, ...]) -> str | None:
    """Say which hospitals a job is waiting for; None if there are enough."""
    asked = info.sites or connected
    there = [site for site in asked if site in connected]
    if len(there) >= info.min_sites:
        return None
    missing = [site for site in asked if site not in connected]
    said = f"needs {info.min_sites} hospitals, connected {len(there)}: {', '.join(there) or 'none'}"
    return f"{said}; not connected: {', '.join(missing)}" if missing else said


def download(session: Session, chain: str, out: Path) -> Path:
    """Fetch model, checkpoint and results of a chain from its last job; return the folder.

    Raises:
        DeployError: the job has not left any, or the server does not answer.
    """
    job = jobs(session, chain)[-1].job
    with tempfile.TemporaryDirectory() as folder:
        results = session.download(job, Path(folder)) / "workspace"
        files = [path for path in (results / name for name in RESULT_FILES) if path.exists()]
        if not files:
            raise DeployError(
                f"The job {job} left no model. `fedmr-med deploy watch {chain} --resume` resumes it.",
                code="chain.no-model",
            )
        out.mkdir(parents=True, exist_ok=True)
        for path in files:
            shutil.copy2(path, out / path.name)
    return out


def _kept(session: Session, chain: str) -> Path:
    """Return where this kit keeps what was submitted."""
    return session.kit / "chains" / chain / "job"


def submitted(session: Session, chain: str, folder: Path) -> Path:
    """Return the chain's job folder: the copy in this kit, or else the server's, fetched below ``folder``."""
    known = jobs(session, chain)
    if (kept := _kept(session, chain)).is_dir():
        (source,) = kept.iterdir()
        return source
    fetched = session.download(known[0].job, folder / "fetched")
    folders = sorted((fetched / "job").rglob("meta.json"))
    if not folders:
        raise DeployError(
            f"The server has no folder of the job {known[0].job}; resume from the kit it was submitted.",
            code="chain.no-folder",
        )
    return folders[0].parent
