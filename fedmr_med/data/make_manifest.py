"""Making a manifest for a folder of images: from its folders, or from a table that lies in it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedmr_med.data.check import MANIFEST
from fedmr_med.data.folds import FoldName
from fedmr_med.data.images import SUFFIXES, image_files
from fedmr_med.data.manifest import COLUMNS, image_path
from fedmr_med.data.tables import open_table, table_text
from fedmr_med.errors import DataError
from fedmr_med.files import write_text
from fedmr_med.schema.keys import commented_yaml
from fedmr_med.sites import SITE_FILE, ManifestSource, SiteConfig

# What the columns of other people's tables are called.
_IMAGE_COLUMNS = ("image", "image_id", "file", "filename", "file_name", "path", "isic_id")
_LABEL_COLUMNS = ("label", "class", "diagnosis", "dx", "target")
_FOLD_COLUMNS = ("fold", "split")
_FOLDS: dict[str, FoldName] = {"train": "train", "training": "train", "test": "test", "testing": "test"}

_HEADING = (
    "What this hospital works with and what it shares. Nothing leaves it but trained models until it says so here. "
    "Relative paths count from the folder of this file."
)


@dataclass(frozen=True)
class Item:
    """An image with what is known about it; ``fold`` is None and ``group`` "" where that is not known."""

    image: str
    label: str
    group: str = ""
    fold: FoldName | None = None


@dataclass(frozen=True)
class NewManifest:
    """What was written.

    Attributes:
        path: the manifest.
        classes: its labels.
        train, test: how many images are in which fold.
        how: where labels, groups and folds come from, in words.
        site_file: the site file that was written beside it; None if there was one.
    """

    path: Path
    classes: tuple[str, ...]
    train: int
    test: int
    how: str
    site_file: Path | None

    def as_values(self) -> dict[str, Any]:
        """Return it as plain values."""
        site_file = str(self.site_file) if self.site_file else None
        return asdict(self) | {"path": str(self.path), "site_file": site_file}


def make_manifest(
    folder: Path,
    *,
    table: Path | None = None,
    split: float = 0.2,
    group_by: str | None = None,
    seed: int = 0,
    replace: bool = False,
) -> NewManifest:
    """Write a manifest for a folder of images, and a site file that shares nothing where there is none.

    Args:
        folder: the images, in one folder per class, or anywhere with a table that names them.
        table: that table; None takes the folders, or the only CSV file that lies in ``folder``.
        split: share of the groups of each class that goes to the test fold, unless folders or table say which.
        group_by: what has to stay in one fold: a column of the table, or the level of folders that is not the class.
        seed: of the split.
        replace: whether a manifest that is there may be replaced.

    Raises:
        DataError: a manifest is there, there are no images, or it cannot be told what their labels are.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder.", code="file.missing")
    path = folder / MANIFEST
    if path.exists() and not replace:
        raise DataError(f"{path} is there already; --force replaces it.", code="file.exists", key="--force")
    files = [Path(name) for name in image_files(folder)]
    if not files:
        raise DataError(f"{folder} holds no images ({', '.join(SUFFIXES)}).", code="data.empty")
    table = table or _only_table(folder)
    items, how = _from_table(table, files, group_by) if table else _from_folders(folder, files, group_by)
    folds = assign_folds(items, split, seed)
    rows = ((item.image, item.label, fold, item.group) for item, fold in zip(items, folds, strict=True))
    site_file = None if (folder / SITE_FILE).exists() else folder / SITE_FILE
    try:
        write_text(path, table_text(COLUMNS, rows))
        if site_file:
            source = ManifestSource(source="manifest", root=Path())
            write_text(site_file, commented_yaml(SiteConfig(data=source), _HEADING))
    except OSError as e:
        raise DataError(f"{path} cannot be written: {e.strerror or e}.", code="file.not-writable") from e
    classes = tuple(sorted({item.label for item in items}))
    return NewManifest(path, classes, folds.count("train"), folds.count("test"), how, site_file)


def assign_folds(items: Sequence[Item], split: float, seed: int) -> list[FoldName]:
    """Return the fold of each item: the known one, or by groups, so that each class gets its share of test images.

    An item without a group is a group of its own. A class with two groups or more has a test image.
    """
    if all(item.fold for item in items):
        return [item.fold or "train" for item in items]
    keys = [item.group or f"\0{item.image}" for item in items]
    label_of: dict[str, str] = {}
    for key, item in zip(keys, items, strict=True):
        label_of.setdefault(key, item.label)
    test: set[str] = set()
    generator = np.random.default_rng(seed)
    for label in sorted(set(label_of.values())):
        groups = sorted(key for key, own in label_of.items() if own == label)
        number = min(len(groups) - 1, max(1, round(split * len(groups)))) if split and len(groups) > 1 else 0
        number = len(groups) if split == 1 else number
        test |= {groups[i] for i in generator.permutation(len(groups))[:number]}
    return ["test" if key in test else "train" for key in keys]


def _only_table(folder: Path) -> Path | None:
    """Return the table that lies in a folder, if there is exactly one besides the manifest."""
    tables = [path for path in sorted(folder.glob("*.[ct]sv")) if path.name != MANIFEST]
    if len(tables) > 1:
        raise DataError(
            f"{folder} holds several tables ({', '.join(t.name for t in tables)}); name one with --table.",
            code="data.ambiguous",
            key="--table",
        )
    return tables[0] if tables else None


def _from_table(path: Path, files: Sequence[Path], group_by: str | None) -> tuple[list[Item], str]:
    """Read labels, groups and folds from a table; an image is named by its path, or by its name with or without end."""
    table = open_table(path, ())
    image, label = _column(table.columns, _IMAGE_COLUMNS, path), _column(table.columns, _LABEL_COLUMNS, path)
    group = (group_by or "").lower() or ("group" if "group" in table.columns else "")
    if group and group not in table.columns:
        raise DataError(
            f"{path} has no column {group!r} to group by (its columns: {', '.join(table.columns)}).",
            code="data.column",
            key=group,
        )
    fold = next((name for name in _FOLD_COLUMNS if name in table.columns), None)
    known: dict[str, str] = {}
    for file in files:
        for key in (file.as_posix(), file.name, file.stem):
            known.setdefault(key, file.as_posix())
    items, missing = [], []
    for row, record in table.records:
        try:
            name = image_path(record[image])
        except ValueError:
            name = record[image].replace("\\", "/").rsplit("/", 1)[-1]
        if name not in known:
            missing.append(f"{record[image]} (row {row})")
            continue
        items.append(
            Item(known[name], record[label], record.get(group, ""), _FOLDS.get(record[fold].lower()) if fold else None)
        )
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise DataError(
            f"{path} names images that are not in {path.parent}: {', '.join(missing[:3])}{more}.",
            code="data.missing-images",
        )
    return items, f"labels from the column {label!r} of {path.name}"


def _from_folders(folder: Path, files: Sequence[Path], group_by: str | None) -> tuple[list[Item], str]:
    """Take labels, groups and folds from the names of the folders above the images."""
    levels = [[*file.parts[:-1]] for file in files]
    folds: list[FoldName | None] = [None] * len(files)
    if all(parts and parts[0].lower() in _FOLDS for parts in levels):
        folds = [_FOLDS[parts.pop(0).lower()] for parts in levels]
    depth = {len(parts) for parts in levels}
    wanted = 2 if group_by else 1
    if depth != {wanted}:
        layout = f"CLASS/{group_by.upper()}" if group_by else "CLASS"
        example = next(file for file, parts in zip(files, levels, strict=True) if len(parts) != wanted)
        raise DataError(
            f"{folder / example} is not below {layout}/: images have to lie in one folder per class"
            f"{' and ' + group_by if group_by else ''}, or be named by a table with image and label (--table).",
            code="data.layout",
        )
    names = [sorted({parts[level] for parts in levels}) for level in range(wanted)]
    # There are more patients than classes, whichever is above.
    of_class = 0 if wanted == 1 or len(names[0]) <= len(names[1]) else 1
    items = [
        Item(file.as_posix(), parts[of_class], parts[1 - of_class] if group_by else "", fold)
        for file, parts, fold in zip(files, levels, folds, strict=True)
    ]
    return items, f"labels from folders: {', '.join(names[of_class])}"


def _column(columns: Iterable[str], names: Sequence[str], path: Path) -> str:
    for name in names:
        if name in columns:
            return name
    raise DataError(
        f"{path} has none of the columns {', '.join(names)} (its columns: {', '.join(columns)}).", code="data.column"
    )
