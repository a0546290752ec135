"""One rule for the settings of a job on the demo."""

from pathlib import Path

import pytest

from fedmr_med.data.demo import effective_job
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.sites import DemoSource, FlambyIsicSource, SiteConfig

JOB = isic_job("fedmr")


def site(center: int, *, images: bool) -> SiteConfig:
    if images:
        return SiteConfig(data=FlambyIsicSource(source="flamby_isic", center=center, root=Path("prepared")))
    return SiteConfig(data=DemoSource(source="demo", center=center))


def test_where_all_sites_have_images_the_job_stays_as_it_is() -> None:
    assert effective_job(JOB, {"bcn": site(0, images=True), "msk": site(4, images=True)}) is JOB


def test_where_no_site_has_images_the_job_has_its_demo_settings() -> None:
    job = effective_job(JOB, {"bcn": site(0, images=False), "msk": site(4, images=False)})
    assert job == JOB.for_demo()
    assert job.task.image_size == 40


def test_a_mixture_is_refused_with_the_names_of_those_without_images() -> None:
    sites = {
        "msk": site(4, images=False),
        "vienna-dias": site(5, images=True),
        "bcn": site(0, images=False),
    }
    with pytest.raises(ConfigError, match=r"No images of bcn, msk, while other sites have theirs.*FEDMR_MED_ISIC"):
        effective_job(JOB, sites)
