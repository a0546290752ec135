"""Which site holds how many images of which class."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.data.check import IMAGE_SIZE
from fedmr_med.data.demo import DEMO, class_counts_of
from fedmr_med.data.flamby_isic import (
    CLASS_NAMES,
    HOSPITALS,
    PREPARED_FOLDER,
    SPLIT_FILE,
    check_names,
    find_root,
    read_centers,
)
from fedmr_med.data.folds import FoldName, Row, in_sentences, open_rows, shared_groups
from fedmr_med.data.labels import labels_of
from fedmr_med.data.manifest import read_manifest
from fedmr_med.errors import DataError
from fedmr_med.sites import SITE_FILE, DemoSource, FlambyIsicSource, ManifestSource, load_site

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SiteSummary:
    """What one site holds.

    Attributes:
        train, test: images of each class, (C,).
        leaked: test images of a patient or lesion that is in the train fold as well; None if that is not known.
        is_demo: whether the pictures are generated.
        unreadable: images that cannot be read, one line each; None if nobody opened them.
        warnings: pictures that are there more than once, one sentence for each thing that is wrong with it.
    """

    name: str
    train: Counts
    test: Counts
    leaked: int | None = None
    is_demo: bool = False
    unreadable: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()

    def counts(self, fold: FoldName) -> Counts:
        """Return the images of each class in one fold, (C,)."""
        return self.train if fold == "train" else self.test

    def as_json(self) -> dict[str, Any]:
        """Return it as plain lists and numbers."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        demo = values.pop("is_demo")
        return values | {"train": self.train.tolist(), "test": self.test.tolist(), "demo": demo}


@dataclass(frozen=True)
class Description:
    """The class x site table."""

    class_names: tuple[str, ...]
    sites: tuple[SiteSummary, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the table as plain lists and numbers."""
        return {"classes": list(self.class_names), "sites": [site.as_json() for site in self.sites]}


def describe(
    place: str | Path,
    *,
    class_names: Sequence[str] = CLASS_NAMES,
    split_file: Path | None = None,
    flamby: Path | None = None,
    quick: bool = True,
) -> Description:
    """Count the images of each class at each site.

    Args:
        place: ``demo``, a folder of Fed-ISIC2019, or a folder with one ``<site>/site.yaml`` per hospital.
        class_names: the classes of the manifests.
        split_file, flamby: where FLamby's table is, if not in the folder.
        quick: count rows alone, without opening an image.

    Raises:
        DataError: there is nothing to describe, or a table is not valid.
    """
    if Path(place) == DEMO:
        sources = [DemoSource(source="demo", center=center) for center in range(len(HOSPITALS))]
        return Description(CLASS_NAMES, tuple(map(_demo, HOSPITALS, sources)))
    folder = Path(place)
    site_files = sorted(folder.glob(f"*/{SITE_FILE}"))
    if site_files:
        names = tuple(class_names)
        return Description(names, tuple(_site(path, names, quick) for path in site_files))
    if split_file or flamby or (folder / PREPARED_FOLDER).is_dir() or (folder / SPLIT_FILE).is_file():
        centers = read_centers(folder, split_file, flamby)
        images = None if quick else folder / PREPARED_FOLDER
        sites = (_summary(name, rows, len(CLASS_NAMES), images) for name, rows in zip(HOSPITALS, centers, strict=True))
        return Description(CLASS_NAMES, tuple(sites))
    raise DataError(
        f"{folder} holds neither Fed-ISIC2019 ({PREPARED_FOLDER}) nor sites (<site>/{SITE_FILE}).", code="data.missing"
    )


def _site(path: Path, class_names: tuple[str, ...], quick: bool) -> SiteSummary:
    """Count what the source in a site file holds."""
    name = path.parent.name
    config = load_site(path)
    source = config.data
    if isinstance(source, DemoSource):
        return _demo(name, source, class_names)
    if isinstance(source, ManifestSource):
        rows = read_manifest(source.root / source.manifest, labels_of(config, class_names))
        return _summary(name, rows, len(class_names), None if quick else source.root, config.cache)
    if isinstance(source, FlambyIsicSource):
        check_names(class_names)
        root = find_root(source.root)
        rows = read_centers(root, source.split_file, source.flamby)[source.center]
        return _summary(name, rows, len(CLASS_NAMES), None if quick else root / PREPARED_FOLDER, config.cache)
    raise DataError(
        f"{path}: data.source {source.source} has no table of its own; its split is drawn by the job.",
        code="config.conflict",
        key="data.source",
    )


def _summary(
    name: str, rows: Sequence[Row], num_classes: int, images: Path | None = None, cache: Path | None = None
) -> SiteSummary:
    """Count rows by fold and class, and open the images where a folder of them is named and there."""
    train, test = (
        np.bincount([row.label for row in rows if row.fold == fold], minlength=num_classes).astype(np.int64)
        for fold in ("train", "test")
    )
    shared = shared_groups(rows)
    leaked = sum(row.group in shared for row in rows if row.fold == "test")
    summary = SiteSummary(name, train, test, leaked=leaked if any(row.group for row in rows) else None)
    if images is None or not images.is_dir():
        return summary
    opened = open_rows(images, rows, image_size=IMAGE_SIZE, cache=cache)
    return replace(summary, unreadable=opened.skipped, warnings=in_sentences(opened.duplicates))


def _demo(name: str, source: DemoSource, class_names: Sequence[str] = CLASS_NAMES) -> SiteSummary:
    train, test = (np.array(counts, dtype=np.int64) for counts in class_counts_of(source, class_names))
    return SiteSummary(name, train, test, leaked=0, is_demo=True)
