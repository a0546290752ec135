"""Cutting FLamby's folder into one folder per hospital, as a real hospital would hold its data."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmr_med.data.flamby_isic import (
    CLASS_NAMES,
    HOSPITALS,
    PREPARED_FOLDER,
    find_root,
    read_centers,
)
from fedmr_med.data.folds import Row, shared_groups
from fedmr_med.data.manifest import COLUMNS, MANIFEST
from fedmr_med.data.tables import table_text, writing
from fedmr_med.errors import DataError
from fedmr_med.schema.keys import commented_yaml
from fedmr_med.sites import SITE_FILE, ManifestSource, SiteConfig

_IMAGES = "images"


@dataclass(frozen=True)
class SplitReport:
    """What was written: the number of images by hospital, and the hospitals of which there are none."""

    sites: dict[str, int]
    absent: tuple[str, ...]


def split_sites(
    root: Path | None,
    out: Path,
    *,
    split_file: Path | None = None,
    flamby: Path | None = None,
    lesions: Path | None = None,
) -> SplitReport:
    """Write ``out/<hospital>`` with manifest, images and a site file for each centre of a prepared folder.

    Images are hard links where the file system allows it, else copies. A hospital without any image is left out.

    Args:
        root: the prepared folder; None uses ``FEDMR_MED_ISIC``.
        split_file, flamby: where FLamby's table is, if not in ``root``.
        lesions: HAM10000's metadata, for the group column; None looks in ``root``.

    Raises:
        DataError: the data is missing or incomplete, or a hospital's folder exists. Nothing is written then.
    """
    root = find_root(root)
    centers = read_centers(root, split_file, flamby, lesions)
    images = root / PREPARED_FOLDER
    present = {}
    for hospital, rows in zip(HOSPITALS, centers, strict=True):
        if _check_complete(hospital, images, rows):
            present[hospital] = rows
        if (out / hospital).exists():
            raise DataError(f"{out / hospital} already exists; remove it or choose another folder.", code="file.exists")
    if not present:
        raise DataError(f"{images} holds none of the images in FLamby's table.", code="data.empty")
    with writing(out):
        for hospital, rows in present.items():
            _write_site(out / hospital, images, rows, HOSPITALS.index(hospital))
    return SplitReport(
        sites={hospital: len(rows) for hospital, rows in present.items()},
        absent=tuple(hospital for hospital in HOSPITALS if hospital not in present),
    )


def _check_complete(hospital: str, images: Path, rows: Sequence[Row]) -> bool:
    """Return whether the images of a hospital are there; raise DataError if only some of them are."""
    missing = [row.image for row in rows if not (images / row.image).is_file()]
    if missing and len(missing) < len(rows):
        raise DataError(
            f"{images} lacks {len(missing)} of {len(rows)} images of {hospital}, the first is {missing[0]}: "
            "run `fedmr-med data prepare-isic` again.",
            code="data.missing-images",
        )
    return not missing


def _write_site(folder: Path, images: Path, rows: Sequence[Row], center: int) -> None:
    """Write a hospital's folder under another name and rename it when it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        (building / _IMAGES).mkdir()
        for row in rows:
            _link_or_copy(images / row.image, building / _IMAGES / row.image)
        listed = ((f"{_IMAGES}/{row.image}", CLASS_NAMES[row.label], row.fold, row.group) for row in rows)
        (building / MANIFEST).write_text(table_text(COLUMNS, listed), encoding="utf-8")
        (building / SITE_FILE).write_text(_site_file(folder.name, rows, center), encoding="utf-8")
        building.chmod(0o755)
        building.rename(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _site_file(hospital: str, rows: Sequence[Row], center: int) -> str:
    shared = shared_groups(rows)
    train = sum(row.fold == "train" for row in rows)
    leaked = sum(row.fold == "test" and row.group in shared for row in rows)
    heading = (
        f"{hospital}: centre {center} of Fed-ISIC2019, {train} train and {len(rows) - train} test images. Relative "
        f"paths count from the folder of this file. FLamby splits by image: {leaked} test images show a lesion that is "
        "in the train fold too, which makes the test too easy."
    )
    source = ManifestSource(source="manifest", root=Path(), allow_shared_groups=bool(shared), prepared=True)
    return commented_yaml(SiteConfig(data=source), heading)
