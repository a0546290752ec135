"""A job for any hospitals and classes, made from another job's settings."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmr_med.config import NO_MODEL, JobConfig
from fedmr_med.data.labels import check_classes, labels_of
from fedmr_med.data.manifest import read_manifest
from fedmr_med.errors import ConfigError, PolicyError
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.jobs.changes import change
from fedmr_med.jobs.folder import find_job
from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.schema import NAME_PATTERN
from fedmr_med.site.floors import SiteFloors
from fedmr_med.sites import SITE_FILE, ManifestSource, SiteConfig, load_site

MOST_PASSES = 5
"""Passes over the images of an average site in a round, unless the job's steps are given."""


SURVEY_CHANGES: Mapping[str, Any] = {
    "survey": True,
    "model.name": NO_MODEL,
    "method.name": "fedavg",
    "head.exchange": "none",
    "federation.rounds": 0,
}
"""What makes a job a survey."""


def new_job(
    name: str,
    sites: Path,
    classes: Sequence[str],
    *,
    method: str | None = None,
    base: Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[JobConfig, dict[str, SiteConfig]]:
    """Return a job for the hospitals below ``sites``, and their settings, whose paths are absolute.

    Args:
        name: of the job.
        sites: folder with one ``<site>/site.yaml`` per hospital.
        classes: what is to be told apart, in the order of the labels.
        method: another method than that of ``base``.
        base: job folder, or name of one in ``jobs/``, whose settings to start from; None takes the Fed-ISIC2019 job.
        changes: other settings, see :func:`fedmr_med.jobs.changes.change`.

    Raises:
        ConfigError: a name, setting or site file is not valid, or there is no site.
        DataError: a hospital's table is not valid.
        ClassNamesError: a hospital's own classes are not the job's.
        PolicyError: a hospital would refuse the job.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigError(
            f"--name {name}: give letters, digits, dots, dashes and underscores only.",
            code="config.value",
            key="--name",
        )
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise ConfigError(
            f"--classes {','.join(classes)}: give two or more different names, comma-separated.",
            code="config.value",
            key="--classes",
        )
    found = own_sites(sites, classes)
    job = find_job(base, "--base") if base else isic_job(method or "fedmr")
    if base and method:
        job = change(job, {"method.name": method})
    weights = "local" if job.loss.class_weights == "flamby" else job.loss.class_weights
    # Two thirds of the hospitals make a round count, and at least two of them.
    quorum = max(min(2, len(found)), -(-2 * len(found) // 3))
    own = {
        "name": name,
        "task": {"dataset": name, "class_names": list(classes), "split": None, "preparation": None},
        "loss": {"class_weights": weights},
        "federation": {"min_sites": quorum, "sites_per_round": None},
        "chain": None,
    }
    # Without the base's settings for the demo, whose pictures are of Fed-ISIC2019's classes.
    job = change(job.override(own), changes or {})
    images = {site: _training_images(job, site_config) for site, site_config in found.items()}
    job = change(job, _budget(job, [count for count in images.values() if count]) | dict(changes or {}))
    for site, config in found.items():
        _check_site(job, site, config, images[site])
    return job, found


def own_sites(folder: Path, classes: Sequence[str]) -> dict[str, SiteConfig]:
    """Return the settings of the hospitals below a folder, by name; raises as :func:`new_job` does."""
    paths = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    paths = [path for path in paths if not path.name.startswith(".")]
    if not paths:
        raise ConfigError(
            f"{folder} has no folder in it; --sites names a folder with one folder per hospital.",
            code="site.none",
            key="--sites",
        )
    found = {}
    for path in paths:
        if not re.fullmatch(NAME_PATTERN, path.name) or path.name == "server":
            raise ConfigError(f"{path}: a site cannot be called {path.name!r}; rename the folder.", code="site.name")
        if not (path / SITE_FILE).is_file():
            raise ConfigError(
                f"{path} has no {SITE_FILE}; `fedmr-med data manifest {path}` writes one.",
                code="file.missing",
                key="site.yaml",
            )
        site = load_site(path / SITE_FILE)
        check_classes(site, classes)
        found[path.name] = site
    return found


def _training_images(job: JobConfig, site: SiteConfig) -> int | None:
    """Return how many training images a site's table lists, None without one; raise DataError if it is not valid."""
    if not isinstance(site.data, ManifestSource):
        return None
    rows = read_manifest(site.data.root / site.data.manifest, labels_of(site, job.task.class_names))
    return sum(row.fold == "train" for row in rows)


def _budget(job: JobConfig, images: Sequence[int]) -> dict[str, int]:
    """Return batch size and steps of a round for sites with so many training images each.

    The smallest site has more than one batch, and an average one passes over its images at most ``MOST_PASSES`` times,
    or takes the fewest steps that a site's policy allows by default.
    """
    if job.train.updates is None or not images:
        return {}
    size, floors = job.train.batch_size, TrainingFloors()
    while size >= min(images) and size // 2 >= floors.min_batch_size:
        size //= 2
    steps = math.ceil(MOST_PASSES * sum(images) / len(images) / size)
    return {"train.batch_size": size, "train.updates": min(job.train.updates, max(floors.min_updates, steps))}


def _check_site(job: JobConfig, name: str, site: SiteConfig, images: int | None) -> None:
    """Refuse a job that a site would refuse: better now than in round 1."""
    floors = SiteFloors(site.policy, Path())
    try:
        floors.check_job(job)
        if images is not None:
            floors.check_amount(job, images)
    except PolicyError as e:
        raise e.reworded(f"{name} would refuse this job: {e} Change its {SITE_FILE}, or the job with --set.") from e
