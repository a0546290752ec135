"""The data of a site: where it comes from, how it is cut and how it reaches the network."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import SiteData
from fedmr_med.data.drawing import with_validation
from fedmr_med.data.labels import check_classes
from fedmr_med.errors import DataError
from fedmr_med.registry import Registry
from fedmr_med.sites import (
    BenchmarkSource,
    DatasetSource,
    DemoSource,
    FlambyIsicSource,
    ManifestSource,
    ScriptSource,
    SiteConfig,
)

__all__ = ["load"]

Reader = Callable[[Any, TaskConfig, SiteConfig, int], SiteData]
"""Reads a site's data, given the ``data`` section of its settings, the task, all its settings, and the job's seed."""

READERS: Registry[Reader] = Registry(
    "reader of data", group="fedmr_med.readers", fits=lambda name, item: callable(item)
)
"""Readers of the sources that no hospital has, by ``data.source``."""


def load(site: SiteConfig, task: TaskConfig, *, seed: int) -> SiteData:
    """Return the train and test fold of a site, whatever the source of its data.

    Images are decoded once, to a shorter edge fit for crops of ``task.image_size``, and stay uint8 RGB.

    Args:
        seed: the job's; it cuts benchmark datasets and draws what is held out of them, and changes nothing else.

    Raises:
        DataError: the data is missing or inconsistent, or too many images are unreadable.
        ClassNamesError: the job gives the site's labels another meaning.
    """
    check_classes(site, task.class_names)
    loaded = _load(site, task, seed)
    if not site.held_out:
        return loaded
    divided = with_validation(loaded, site.held_out, seed if isinstance(site.data, BenchmarkSource) else 0)
    server_scores = isinstance(site.data, BenchmarkSource) and not site.data.holds_test
    test = loaded.test if server_scores or divided.validation is None else divided.validation
    return replace(divided, test=test, validation=None)


def _load(site: SiteConfig, task: TaskConfig, seed: int) -> SiteData:
    source = site.data
    if isinstance(source, DemoSource):
        from fedmr_med.data.demo import load_demo

        return load_demo(source, task)
    if isinstance(source, FlambyIsicSource):
        from fedmr_med.data.flamby_isic import load_flamby_isic

        return load_flamby_isic(source, task, site)
    if isinstance(source, DatasetSource):
        from fedmr_med.data.own import load_own

        return load_own(source, task, site)
    if isinstance(source, ScriptSource):
        raise DataError(
            "data.source: script is for jobs with a training script, which reads its own data.",
            code="config.conflict",
            key="data.source",
        )
    if isinstance(source, ManifestSource):
        from fedmr_med.data.manifest import load_manifest

        return load_manifest(source, task, site)
    return READERS.get(source.source, "data.source")(source, task, site, seed)
