"""A job that gives a finished one-shot chain a class that nobody had, see :mod:`fedmr_med.exchange.joining`."""

import json
import re
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_json
from fedmr_med.jobs.folder import ALL_SITES, copy_job, job_in


def extended(job: JobConfig, *, chain: str, new_class: str, site: str) -> JobConfig:
    """Return the job that adds a class to a chain of ``job``.

    Args:
        chain: id of the chain; it keeps what its head is made of.
        new_class: name of the class.
        site: the one that has its images, and that alone is asked for statistics.

    Raises:
        ConfigError: the chain is none that can be extended, or the class is not new.
    """
    if new_class in job.task.class_names:
        raise ConfigError(f"--class {new_class}: the job has that class already.", code="config.value", key="--class")
    if not job.head.keep:
        raise ConfigError(
            f"The job {job.name} keeps no statistics of its head, so the others would have to be asked again. Write it "
            "with head.keep: true.",
            code="extend.nothing-kept",
            key="head.keep",
        )
    shared = job.policy.share_prototypes
    changes: dict[str, Any] = {
        "name": f"{job.name}_{re.sub('[^A-Za-z0-9]+', '_', new_class).strip('_').lower() or 'class'}",
        "task": {"class_names": [*job.task.class_names, new_class]},
        "head": {"extends": {"chain": chain, "site": site}},
        "federation": {"without": []},
        "policy": {} if isinstance(shared, bool) else {"share_prototypes": [*shared, new_class]},
        "chain": None,
    }
    return job.override(changes).model_copy(update={"demo": job.demo})


def extend_job(source: Path, out: Path, *, chain: str, new_class: str, site: str) -> Path:
    """Write the folder of that job below ``out``, from the folder of the chain's job; return it.

    Raises:
        ConfigError: see :func:`extended`; or the source is no job folder, or the folder to write exists.
    """
    job = extended(job_in(source), chain=chain, new_class=new_class, site=site)
    folder = out / job.name
    if folder.exists():
        raise ConfigError(f"{folder} exists; choose another --out.", code="file.foreign", key="--out")
    copy_job(source, folder, lambda _: job)
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8")) | {"name": job.name}
    meta.pop("custom_props", None)
    named = {place for places in meta["deploy_map"].values() for place in places}
    if not {site, ALL_SITES} & named:
        next(iter(meta["deploy_map"].values())).append(site)
    write_json(folder / "meta.json", meta)
    return folder
