"""The built-in demo: generated pictures, so that a federation runs on a machine without any data.

Which classes a centre holds in number, rarely or not at all follows Fed-ISIC2019. When the demo stands in for images is
said in :mod:`fedmr_med.sites`.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedmr_med.config import JobConfig, TaskConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.demo.pictures import draw
from fedmr_med.data.flamby_isic import CLASS_NAMES, HOSPITALS, TEST_COUNTS, TRAIN_COUNTS, check_names
from fedmr_med.data.folds import FoldName
from fedmr_med.data.transforms import edge_for
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.seeding import numpy_generator
from fedmr_med.sites import ISIC_VARIABLE, DemoSource, SiteConfig

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


RARE = 10
"""A class with fewer training images at a centre is rare there: the default policy does not share its prototype."""


def class_counts_of(source: DemoSource, class_names: Sequence[str] = CLASS_NAMES) -> tuple[list[int], list[int]]:
    """Return how many train and test pictures of each class of a task a site has.

    Those of a centre grow with the root of FLamby's numbers, so that a class that is absent, rare or frequent at a
    centre of Fed-ISIC2019 is absent, rare or frequent here. A class that is not rare has enough test pictures for its
    scores to leave under the default policy.

    Raises:
        DataError: the classes of the task, or of the site, are not those of ISIC2019.
    """
    if source.classes is not None:
        unknown = [name for name in class_names if name not in CLASS_NAMES]
        unknown += [name for name in source.classes if name not in class_names]
        if unknown:
            raise DataError(
                f"{unknown[0]} is not a class of both the demo and the job.",
                code="data.class-names",
                key="data.classes",
            )
        held = [name in source.classes for name in class_names]
        return [source.images * own for own in held], [source.images // 3 * own for own in held]
    check_names(class_names, "The demo")
    train, test = TRAIN_COUNTS[source.center], TEST_COUNTS[source.center]
    return (
        [images if images < RARE else round(11 + 0.6 * math.sqrt(images)) for images in train],
        [images if images < RARE else round(11 + 0.1 * math.sqrt(images)) for images in test],
    )


def load_demo(source: DemoSource, task: TaskConfig) -> SiteData:
    """Generate the pictures of one site, about a hundred at a size fit for ``task.image_size``.

    They do not depend on the seed of the job: the demo stands in for a fixed dataset.

    Raises:
        DataError: see :func:`class_counts_of`.
    """
    numbers = {name: label for label, name in enumerate(task.class_names)}
    label_of = tuple(numbers.get(name, -1) for name in CLASS_NAMES)

    def fold(name: FoldName, counts: list[int]) -> Fold:
        wanted = tuple(counts[label] if label >= 0 else 0 for label in label_of)
        return _fold(source.center, name, edge_for(task.image_size), wanted, label_of)

    train, test = class_counts_of(source, task.class_names)
    return SiteData(fold("train", train), fold("test", test), class_names=task.class_names, is_demo=True)


@lru_cache(maxsize=2 * len(HOSPITALS))
def _fold(center: int, fold: FoldName, edge: int, counts: tuple[int, ...], label_of: tuple[int, ...]) -> Fold:
    """Draw so many pictures of each class; picture ``index`` depends on centre, fold, class and index alone.

    They are kept, read-only: a process that works for several sites and rounds draws the pictures of each site once.
    """
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    labels = numpy_generator("demo", center, fold).permutation(labels)
    items = np.empty((len(labels), edge, edge, 3), dtype=np.uint8)
    for label in np.unique(labels):
        indices = np.flatnonzero(labels == label)
        generators = [numpy_generator("demo", center, fold, int(index)) for index in indices]
        items[indices] = draw(int(label), center, generators, edge)
    labels = np.array(label_of)[labels]
    items.flags.writeable = labels.flags.writeable = False
    return Fold(items, labels)
