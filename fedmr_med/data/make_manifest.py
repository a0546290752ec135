"""Making a manifest for a folder of images: from its folders, or from a table that lies in it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedmr_med.data.assign import Item, assign_folds, scarce_classes
from fedmr_med.data.check import MANIFEST
from fedmr_med.data.dicom import is_dicom, patient_of
from fedmr_med.data.folds import FoldName
from fedmr_med.data.groups import group_names, known_columns, similar_columns
from fedmr_med.data.images import SUFFIXES, image_files
from fedmr_med.data.manifest import COLUMNS, image_path
from fedmr_med.data.tables import Table, open_table, table_text
from fedmr_med.errors import DataError
from fedmr_med.files import write_text
from fedmr_med.schema.keys import commented_yaml
from fedmr_med.sites import SITE_FILE, ManifestSource, SiteConfig

# What the columns of other people's tables are called.
_IMAGE_COLUMNS = ("image", "image_id", "file", "filename", "file_name", "path", "isic_id")
_LABEL_COLUMNS = ("label", "class", "diagnosis", "dx", "target")
_FOLD_COLUMNS = ("fold", "split")
_FOLDS: dict[str, FoldName | None] = {
    **{"train": "train", "training": "train", "test": "test", "testing": "test"},
    # The validation part is drawn from the training data, by the job.
    **{"val": "train", "valid": "train", "validation": "train", "": None},
}
ALONE = "none"
"""What to group by to let each image stand for itself."""

_HEADING = (
    "What this hospital works with and what it shares. Nothing leaves it but trained models until it says so here. "
    "Relative paths count from the folder of this file."
)


@dataclass(frozen=True)
class NewManifest:
    """What was written.

    Attributes:
        path: the manifest.
        classes: its labels.
        train, test: how many images are in which fold.
        how: where labels, groups and folds come from, in words.
        warnings: the classes of which too few images are in a fold, one sentence each.
        site_file: the site file that was written beside it; None if there was one.
    """

    path: Path
    classes: tuple[str, ...]
    train: int
    test: int
    how: str
    site_file: Path | None
    warnings: tuple[str, ...] = ()

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
    force: bool = False,
) -> NewManifest:
    """Write a manifest for a folder of images, and a site file that shares nothing where there is none.

    Args:
        folder: the images, in one folder per class, or anywhere with a table that names them.
        table: that table; None takes the folders, or the only CSV file that lies in ``folder``.
        split: share of the images of each class that goes to the test fold, unless folders or table say which.
        group_by: what has to stay in one fold: a column of the table, or the level of folders that is not the class;
            ``none`` for nothing. None takes the columns that are known to name patients or lesions, and the patients
            that DICOM files name.
        seed: of the split.
        force: whether a manifest that is there may be replaced.

    Raises:
        DataError: a manifest is there, there are no images, or it cannot be told what their labels, their folds or
            their patients are.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder.", code="file.missing")
    path = folder / MANIFEST
    if path.exists() and not force:
        raise DataError(f"{path} is there already; --force replaces it.", code="file.exists", key="--force")
    files = [Path(name) for name in image_files(folder)]
    if not files:
        raise DataError(f"{folder} holds no images ({', '.join(SUFFIXES)}).", code="data.empty")
    table = table or _only_table(folder)
    items, how = _from_table(table, files, group_by) if table else _from_folders(folder, files, group_by)
    if group_by is None and not any(item.group for item in items):
        items, more = _with_patients(folder, items)
        how += more
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
    scarce = scarce_classes(items, folds)
    return NewManifest(path, classes, folds.count("train"), folds.count("test"), how, site_file, scarce)


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
    fold = next((name for name in _FOLD_COLUMNS if name in table.columns), None)
    columns, how = _group_columns(table, group_by, [image, label, *([fold] if fold else [])])
    names = group_names([record for _, record in table.records], columns)
    known: dict[str, str] = {}
    for file in files:
        for key in (file.as_posix(), file.name, file.stem):
            known.setdefault(key, file.as_posix())
    items, missing = [], []
    for (row, record), group in zip(table.records, names, strict=True):
        try:
            name = image_path(record[image])
        except ValueError:
            name = record[image].replace("\\", "/").rsplit("/", 1)[-1]
        if name not in known:
            missing.append(f"{record[image]} (row {row})")
            continue
        items.append(Item(known[name], record[label], group, _fold(path, row, record[fold]) if fold else None))
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise DataError(
            f"{path} names images that are not in {path.parent}: {', '.join(missing[:3])}{more}.",
            code="data.missing-images",
        )
    folds = f"; folds from {fold!r}" if fold else ""
    return items, f"labels from the column {label!r} of {path.name}{folds}{how}"


def _fold(path: Path, row: int, text: str) -> FoldName | None:
    """Return the fold that a table gives an image; None where it gives none."""
    if text.lower() not in _FOLDS:
        raise DataError(
            f"{path}, row {row}: fold {text!r} is none of train, val, test. Name the folds so, or leave the column "
            "out to have them drawn.",
            code="data.fold",
            key="fold",
        )
    return _FOLDS[text.lower()]


def _group_columns(table: Table, group_by: str | None, used: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the columns whose values stay in one fold, and which they are, in words.

    Raises:
        DataError: the column to group by is not there; or none is known, and one looks like a number of patients.
    """
    chosen = (group_by or "").lower()
    if chosen and chosen != ALONE and chosen not in table.columns:
        raise DataError(
            f"{table.path} has no column {chosen!r} to group by (its columns: {', '.join(table.columns)}).",
            code="data.column",
            key=chosen,
        )
    known = () if chosen == ALONE else (chosen,) if chosen else known_columns(table.columns)
    similar = similar_columns(table.columns, [record for _, record in table.records], (*used, *known))
    if similar and not chosen and not known:
        raise DataError(
            f"{table.path}: the values of {similar[0]!r} repeat, so images may show the same patient. Say --group-by "
            f"{similar[0]} to keep them in one fold, or --group-by {ALONE}.",
            code="data.groups",
            key="--group-by",
        )
    how = f"; kept together by {', '.join(map(repr, known))}" if known else ""
    return known, how + (f"; not used: {', '.join(map(repr, similar))}" if similar else "")


def _with_patients(folder: Path, items: Sequence[Item]) -> tuple[list[Item], str]:
    """Return items with the patients that DICOM files name, unless most of the files name the same."""
    patients = [patient_of(folder / item.image) if is_dicom(folder / item.image) else "" for item in items]
    named = Counter(filter(None, patients))
    if not named:
        return list(items), ""
    if named.most_common(1)[0][1] > len(items) / 2:
        return list(items), "; the PatientID of the DICOM files is not used: most of them have the same"
    found = [replace(item, group=patient) for item, patient in zip(items, patients, strict=True)]
    return found, "; kept together by the PatientID of the DICOM files"


def _from_folders(folder: Path, files: Sequence[Path], group_by: str | None) -> tuple[list[Item], str]:
    """Take labels, groups and folds from the names of the folders above the images."""
    levels = [[*file.parts[:-1]] for file in files]
    folds: list[FoldName | None] = [None] * len(files)
    if all(parts and parts[0].lower() in _FOLDS for parts in levels):
        folds = [_FOLDS[parts.pop(0).lower()] for parts in levels]
    depth = {len(parts) for parts in levels}
    group_by = None if group_by == ALONE else group_by
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
