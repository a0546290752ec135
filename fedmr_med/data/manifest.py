"""A hospital's own data: a table of its images, their labels and folds."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import SiteData
from fedmr_med.data.folds import Row, as_fold, shared_groups, site_data
from fedmr_med.data.labels import labels_of
from fedmr_med.data.tables import read_table
from fedmr_med.errors import DataError
from fedmr_med.sites import ManifestSource, SiteConfig

if TYPE_CHECKING:  # the records of the datasets use this reader
    from fedmr_med.data.datasets.base import Dataset

COLUMNS = ("image", "label", "fold", "group")


def load_manifest(source: ManifestSource, task: TaskConfig, site: SiteConfig) -> SiteData:
    """Return the two folds of a hospital's own folder, in the order of its manifest.

    Raises:
        DataError: the folder or the manifest is missing or not valid, or too many images cannot be read.
    """
    if not source.root.is_dir():
        raise DataError(f"{source.root} is not a folder: check data.root in site.yaml.")
    path = source.root / source.manifest
    rows = read_manifest(path, labels_of(site, task.class_names))
    if not source.allow_shared_groups:
        _check_groups(path, rows)
    return site_data(source.root, rows, task, site)


def read_folder(dataset: "Dataset", root: Path, task: TaskConfig) -> SiteData:
    """Read a whole dataset that is a folder of images with a ``manifest.csv``.

    Raises:
        DataError: the folder or the manifest is missing or not valid, or too many images cannot be read.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. {dataset.how_to_get}")
    source = ManifestSource(source="manifest", root=root)
    return load_manifest(source, task, SiteConfig(data=source))


def read_manifest(path: Path, labels: Mapping[str, int]) -> list[Row]:
    """Read a manifest: columns image, label, fold (train, test), optionally group.

    Args:
        path: the table.
        labels: the number of the class that each label stands for.

    Raises:
        DataError: it cannot be read, a column is missing, a value is not valid or an image is listed twice; names
            the file and the row.
    """
    rows: list[Row] = []
    seen: dict[str, str] = {}
    for where, record in read_table(path, required=COLUMNS[:3]):
        row = _row(where, record, labels)
        if row.image in seen:
            raise DataError(f"{where}: {row.image} is listed a second time (first: {seen[row.image]}).")
        seen[row.image] = where
        rows.append(row)
    if not rows:
        raise DataError(f"{path} lists no images.")
    return rows


def _row(where: str, record: Mapping[str, str], labels: Mapping[str, int]) -> Row:
    """Check one record of a manifest."""
    image = PurePosixPath(record["image"])
    if not record["image"] or image.is_absolute() or ".." in image.parts:
        raise DataError(f"{where}: image {record['image']!r} is not a path inside the data folder.")
    if record["label"] not in labels:
        advice = "" if any(label.isdigit() for label in labels) else " A number needs `classes` in site.yaml."
        raise DataError(f"{where}: label {record['label']!r} is not one of {', '.join(sorted(labels))}.{advice}")
    return Row(str(image), labels[record["label"]], as_fold(record["fold"], where), record.get("group", ""))


def _check_groups(path: Path, rows: Sequence[Row]) -> None:
    """Refuse a patient or lesion with images in both folds: the test would not be one."""
    shared = shared_groups(rows)
    if shared:
        count = sum(row.group in shared for row in rows if row.fold == "test")
        raise DataError(
            f"{path}: group {min(shared)!r} has images in both folds ({len(shared)} such groups, {count} test images). "
            "Correct the fold column, or set data.allow_shared_groups: true in site.yaml."
        )
