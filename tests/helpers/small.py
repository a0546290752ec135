"""A small federation on the demo, for tests: real parts, little arithmetic."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.server.state import GlobalState, initial_state, train_task
from fedmr_med.site.hospital import Hospital
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.wire.messages import SiteReply, TrainTask


def lenient(**sharing: Any) -> SitePolicy:
    """Return a policy without training floors, for jobs of a few small steps, and for a few test images a cell."""
    return SitePolicy(training=None, **{"min_cell_count": 1} | sharing)


OPEN = lenient(share_prototypes=True, share_metrics="per_class")
CLOSED = lenient(share_prototypes=False, share_metrics="per_class")
SMALL = {
    "task": {"image_size": 24},
    "model": {"name": "small_cnn"},
    "train": {"updates": 3, "epochs": None, "batch_size": 8},
    "federation": {"rounds": 2, "min_sites": 1},
}


def small_job(base: str = "fedmr", /, **changes: Any) -> JobConfig:
    """Return an ISIC job cut down to a small network, small pictures and three steps a round."""
    return isic_job(base).for_demo().override(SMALL).override(changes)


def small_hospital(name: str, job: JobConfig, folder: Path, policy: SitePolicy = OPEN) -> Hospital:
    """Open one of the six hospitals on the demo."""
    site = SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index(name)), policy=policy)
    return Hospital(name, job, site, folder / name)


def task_for(state: GlobalState, job: JobConfig) -> TrainTask:
    """Return what the server would send."""
    return train_task(state, job, "chain")


def without(fold: Fold, label: int) -> Fold:
    """Return the fold without the images of a class."""
    keep = fold.labels != label
    return Fold(fold.items[keep], fold.labels[keep])


def first_replies(
    job: JobConfig, state: GlobalState, folder: Path, policies: Mapping[str, SitePolicy]
) -> dict[str, SiteReply]:
    """Return the replies of real hospitals to the first task, by site."""
    task = task_for(state, job)
    return {site: small_hospital(site, job, folder, policy).train(task) for site, policy in policies.items()}


__all__ = [
    "CLOSED",
    "OPEN",
    "SMALL",
    "first_replies",
    "initial_state",
    "lenient",
    "small_hospital",
    "small_job",
    "task_for",
    "without",
]
