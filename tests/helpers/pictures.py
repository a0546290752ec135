"""Small folders of real image files for the tests of the data sources."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from fedmr_med.config import TaskConfig
from fedmr_med.data.flamby_isic import CLASS_NAMES, PREPARED_FOLDER, SPLIT_FILE
from fedmr_med.sites import FlambyIsicSource, ManifestSource, SiteConfig


def isic_task(image_size: int = 48) -> TaskConfig:
    return TaskConfig(dataset="isic2019", class_names=CLASS_NAMES, image_size=image_size, transform="isic")


def write_picture(path: Path, *, size: tuple[int, int] = (72, 54), seed: int = 0) -> None:
    """Write a smooth random picture, so that JPEG keeps it well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)


def write_csv(path: Path, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table by the names of their columns."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def manifest_site(root: Path, **settings: object) -> SiteConfig:
    data = {name: settings.pop(name) for name in ("allow_shared_groups", "manifest", "prepared") if name in settings}
    source = ManifestSource.model_validate({"source": "manifest", "root": root, **data})
    return SiteConfig.model_validate({"data": source, "cache": root.parent / "cache", **settings})


def write_manifest_folder(root: Path, rows: list[tuple[object, ...]], *, pictures: bool = True) -> None:
    """Write a manifest with columns image, label, fold, group, and a picture for each row."""
    write_csv(root / "manifest.csv", ("image", "label", "fold", "group"), rows)
    if pictures:
        for seed, row in enumerate(rows):
            write_picture(root / str(row[0]), seed=seed)


def flamby_site(root: Path, center: int, **settings: object) -> SiteConfig:
    data = {name: settings.pop(name) for name in ("split_file", "flamby") if name in settings}
    source = FlambyIsicSource.model_validate({"source": "flamby_isic", "root": root, "center": center, **data})
    return SiteConfig.model_validate({"data": source, "cache": root.parent / "cache", **settings})


def write_split(path: Path, rows: list[tuple[str, object, object, str]]) -> None:
    """Write a table in FLamby's format from (image, target, center, fold)."""
    full = [(image, *([0.0] * 9), target, center, fold, f"{fold}_{center}") for image, target, center, fold in rows]
    write_csv(path, ("image", *CLASS_NAMES, "UNK", "target", "center", "fold", "fold2"), full)


def write_flamby_folder(
    root: Path, folder: str = PREPARED_FOLDER, per_center: int = 8
) -> list[tuple[str, int, int, str]]:
    """Write a folder of 6 centres, by default with 8 pictures each (6 train, 2 test), and return its table."""
    rows = [(f"ISIC_{center}{i}", (center + i) % 8, center, "test" if i % 4 == 3 else "train")
            for i in range(per_center) for center in range(6)]  # fmt: skip
    write_split(root / SPLIT_FILE, rows)
    for seed, (image, *_) in enumerate(rows):
        write_picture(root / folder / f"{image}.jpg", seed=seed)
    return rows
