"""Which settings a job has where generated pictures stand in for images."""

from collections.abc import Mapping
from pathlib import Path

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.sites import ISIC_VARIABLE, SiteConfig

DEMO = Path("demo")
"""What stands for the demo where a folder with data could be named."""


def effective_job(job: JobConfig, sites: Mapping[str, SiteConfig]) -> JobConfig:
    """Return the job as server and sites run it: with its ``demo`` settings if all sites are on the demo.

    Args:
        job: the job as it is written.
        sites: settings by name, of all sites that are known here: a simulated federation knows all of them, a
            hospital itself alone.

    Raises:
        ConfigError: only some of the sites have images. The others would train with other settings than they do.
    """
    if on_demo(sites):
        return job.for_demo()
    without = sorted(name for name, site in sites.items() if site.data.source == "demo")
    if without:
        raise ConfigError(
            f"No images of {', '.join(without)}, while other sites have theirs: the demo cannot stand in for some "
            f"sites alone. Set data.root in their site.yaml or {ISIC_VARIABLE}, or leave these sites out.",
            code="data.missing",
            key="data.root",
        )
    return job


def on_demo(sites: Mapping[str, SiteConfig]) -> bool:
    """Whether there are sites and all of them work on generated pictures."""
    return bool(sites) and all(site.data.source == "demo" for site in sites.values())
