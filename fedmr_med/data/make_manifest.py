"""Making a manifest for a folder of images: from its folders, or from a table that lies in it."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedmr_med.data.drawing import Item, assign_folds, scarce_classes
from fedmr_med.data.folds import FoldName
from fedmr_med.data.images import SUFFIXES, element_of, image_files, is_dicom
from fedmr_med.data.manifest import COLUMNS, MANIFEST, group_names, image_path, known_columns, similar_columns
from fedmr_med.data.tables import Table, open_table, table_text, writing
from fedmr_med.errors import DataError, PolicyError
from fedmr_med.files import write_text
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import validated
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
_LISTED = 3

_HEADING = (
    "What this hospital works with and what it shares. By default nothing leaves it but trained models. "
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
        warnings: the images of the table that are missing, and the classes of which too few images are in a fold, one
            sentence each.
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
    image_column: str | None = None,
    label_column: str | None = None,
    split: float = 0.2,
    group_by: str | None = None,
    skip_missing: bool = False,
    policy: Mapping[str, Any] | None = None,
    seed: int = 0,
    force: bool = False,
) -> NewManifest:
    """Write a manifest for a folder of images, and a site file where there is none.

    Files with the same content stay in one fold.

    Args:
        folder: the images, in one folder per class, or anywhere with a table that names them.
        table: that table; None takes the folders, or the only CSV file that lies in ``folder``.
        image_column, label_column: columns of the table; None takes those with a usual name.
        split: share of the images of each class that goes to the test fold, unless folders or table say which.
        group_by: what has to stay in one fold: a column of the table, or the level of folders that is not the class;
            ``none`` for nothing. None takes the columns that are known to name patients or lesions, and the patients
            that DICOM files name.
        skip_missing: whether rows of the table without an image file are left out.
        policy: keys of the site file's policy, nested; None shares nothing.
        seed: of the split.
        force: whether a manifest that is there may be replaced.

    Raises:
        DataError: a manifest is there, there are no images, or it cannot be told what their labels, their folds or
            their patients are.
        PolicyError: a key of the policy is not valid, or a site file with another one is there.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder.", code="file.missing")
    path = folder / MANIFEST
    if path.exists() and not force:
        raise DataError(f"{path} is there already; --force replaces it.", code="file.exists", key="--force")
    site_file = None if (folder / SITE_FILE).exists() else folder / SITE_FILE
    if policy and not site_file:
        raise PolicyError(
            f"{folder / SITE_FILE} is there already; change its policy there.", code="file.exists", key="--policy"
        )
    chosen = validated(SitePolicy, dict(policy or {}), "--policy", PolicyError)
    files = [Path(name) for name in image_files(folder)]
    if not files:
        raise DataError(f"{folder} holds no images ({', '.join(SUFFIXES)}).", code="data.empty")
    table = table or _only_table(folder)
    missing: tuple[str, ...] = ()
    if table:
        opened = open_table(table, ())
        columns = (
            _column(opened, image_column, _IMAGE_COLUMNS, "--image-column"),
            _column(opened, label_column, _LABEL_COLUMNS, "--label-column"),
        )
        items, missing, how = _from_table(opened, *columns, files, group_by, skip_missing)
    else:
        items, how = _from_folders(folder, files, group_by)
    if group_by is None and not any(item.group for item in items):
        items, more = _with_patients(folder, items)
        how += more
    items = _with_copies(folder, items)
    folds = assign_folds(items, split, seed)
    rows = ((item.image, item.label, fold, item.group) for item, fold in zip(items, folds, strict=True))
    with writing(path):
        write_text(path, table_text(COLUMNS, rows))
        if site_file:
            source = ManifestSource(source="manifest", root=Path())
            write_text(site_file, commented_yaml(SiteConfig(data=source, policy=chosen), _HEADING))
    classes = tuple(sorted({item.label for item in items}))
    warnings = (*missing, *scarce_classes(items, folds))
    return NewManifest(path, classes, folds.count("train"), folds.count("test"), how, site_file, warnings)


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


def _from_table(
    table: Table, image: str, label: str, files: Sequence[Path], group_by: str | None, skip_missing: bool
) -> tuple[list[Item], tuple[str, ...], str]:
    """Read labels, groups and folds from a table; an image is named by its path, or by its name with or without end.

    Returns:
        The items, a sentence on the images that are missing, and where everything comes from, in words.
    """
    path = table.path
    fold = next((name for name in _FOLD_COLUMNS if name in table.columns), None)
    columns, how = _group_columns(table, group_by, [image, label, *([fold] if fold else [])])
    names = group_names([record for _, record in table.records], columns)
    known: dict[str, str] = {}
    for file in files:
        for key in (file.as_posix(), file.name, file.stem):
            known.setdefault(_same_name(key), file.as_posix())
    items, missing = [], []
    for (row, record), group in zip(table.records, names, strict=True):
        try:
            name = image_path(record[image])
        except ValueError:
            name = record[image].replace("\\", "/").rsplit("/", 1)[-1]
        if _same_name(name) not in known:
            missing.append(f"{record[image]} (row {row})")
            continue
        named = _fold(path, row, record[fold]) if fold else None
        items.append(Item(known[_same_name(name)], record[label], group, named))
    more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
    sentence = f"{path} names images that are not in {path.parent}: {', '.join(missing[:_LISTED])}{more}."
    if missing and not (skip_missing and items):
        advice = (
            " --skip-missing leaves them out." if items else " Is it the right column? --image-column names another."
        )
        raise DataError(sentence + advice, code="data.missing-images", key="--skip-missing")
    folds = f"; folds from {fold!r}" if fold else ""
    how = f"labels from the column {label!r} of {path.name}{folds}{how}"
    return items, (sentence,) if missing else (), how


def _same_name(text: str) -> str:
    """Return the name of a file as it is compared: whatever the case, and however the system writes an umlaut."""
    return unicodedata.normalize("NFC", text).casefold()


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
    patients = [element_of(folder / item.image, "PatientID") if is_dicom(folder / item.image) else "" for item in items]
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


def _with_copies(folder: Path, items: Sequence[Item]) -> list[Item]:
    """Return items of which those with the same file content have one group, with all of their patients."""
    sizes = Counter((folder / item.image).stat().st_size for item in items)
    digests = []
    for item in items:
        path = folder / item.image
        alone = sizes[path.stat().st_size] == 1 or path.stat().st_size == 0
        digests.append("" if alone else hashlib.blake2b(path.read_bytes()).hexdigest()[:12])
    copies = {digest for digest, count in Counter(digests).items() if digest and count > 1}
    if not copies:
        return list(items)
    records = [
        {"": item.group, "copy": digest if digest in copies else ""}
        for item, digest in zip(items, digests, strict=True)
    ]
    groups = group_names(records, ("", "copy"))
    return [replace(item, group=group.strip()) for item, group in zip(items, groups, strict=True)]


def _column(table: Table, chosen: str | None, usual: Sequence[str], option: str) -> str:
    """Return the column of a table that was chosen, or the one with a usual name."""
    for name in usual if chosen is None else (chosen.strip().lower(),):
        if name in table.columns:
            return name
    wanted = f"the column {chosen!r}" if chosen else f"any of the columns {', '.join(usual)}"
    raise DataError(
        f"{table.path} does not have {wanted}; {option} names one of its own: {', '.join(table.columns)}.",
        code="data.column",
        key=option,
    )
