"""A hospital's own data: a table of its images, their labels and folds, and whose pictures they are."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import SiteData
from fedmr_med.data.folds import Row, as_fold, check_groups, shared_groups, site_data
from fedmr_med.data.labels import labels_of
from fedmr_med.data.tables import open_table, problems_error
from fedmr_med.errors import DataError
from fedmr_med.sites import ManifestSource, SiteConfig

if TYPE_CHECKING:  # the records of the datasets use this reader
    from fedmr_med.data.datasets.base import Dataset


KNOWN = (
    *("group", "patient", "patientid", "subject", "subjectid", "participant", "participantid", "person", "personid"),
    *("caseid", "mrn", "lesion", "lesionid"),
)
"""What such columns are called, in lower case and without signs between the letters."""

_LIKE = re.compile(
    r"(^|[^a-z])(id|uid|nr|no|number)$|patient|lesion|subject|study|series|exam|visit|accession|encounter|person|mrn"
)
_LARGEST = 50
"""Images that a value of an unknown column has on average, at most; a hospital's number has more."""


def known_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that name patients or lesions."""
    return tuple(column for column in columns if re.sub(r"[^a-z0-9]", "", column.lower()) in KNOWN)


def similar_columns(
    columns: Sequence[str], records: Sequence[Mapping[str, str]], without: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns, but for some, that look like numbers of patients: by their name, and as values repeat."""
    return tuple(
        column
        for column in columns
        if column not in without and _LIKE.search(column) and _repeats([record[column] for record in records])
    )


def _repeats(values: Sequence[str]) -> bool:
    known = [value for value in values if value]
    return len(set(known)) < len(known) <= _LARGEST * len(set(known))


def group_names(records: Sequence[Mapping[str, str]], columns: Sequence[str]) -> list[str]:
    """Return the group of each record: records that agree in any of the columns are of one; "" where none has a value.

    A patient's lesions are one group, whichever of the columns are filled in.
    """
    parents: dict[tuple[str, str], tuple[str, str]] = {}

    def root(key: tuple[str, str]) -> tuple[str, str]:
        while (parent := parents.setdefault(key, key)) != key:
            parents[key] = parents[parent]
            key = parent
        return key

    keys = [[(column, record[column]) for column in columns if record[column]] for record in records]
    for own in keys:
        for key in own[1:]:
            parents[root(key)] = root(own[0])
    found = [root(own[0]) if own else None for own in keys]
    return ["" if key is None else key[1] if len(columns) == 1 else " ".join(key) for key in found]


MANIFEST, COLUMNS = "manifest.csv", ("image", "label", "fold", "group")


def load_manifest(source: ManifestSource, task: TaskConfig, site: SiteConfig) -> SiteData:
    """Return the two folds of a hospital's own folder, in the order of its manifest.

    Raises:
        DataError: the folder or the manifest is missing or not valid, or too many images cannot be read.
    """
    if not source.root.is_dir():
        raise DataError(
            f"{source.root} is not a folder: check data.root in site.yaml.", code="file.missing", key="data.root"
        )
    path = source.root / source.manifest
    rows = read_manifest(path, labels_of(site, task.class_names))
    check_groups(str(path), shared_groups(rows), source.allow_shared_groups)
    return site_data(source.root, rows, task, site, prepared=source.prepared)


def read_folder(dataset: "Dataset", root: Path, task: TaskConfig) -> SiteData:
    """Read a whole dataset that is a folder of images with a ``manifest.csv``.

    Raises:
        DataError: the folder or the manifest is missing or not valid, or too many images cannot be read.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. {dataset.how_to_get}", code="file.missing")
    source = ManifestSource(source="manifest", root=root)
    return load_manifest(source, task, SiteConfig(data=source))


def read_manifest(path: Path, labels: Mapping[str, int]) -> list[Row]:
    """Read a manifest: columns image, label, fold (train, test), optionally one of :data:`KNOWN`.

    Labels and folds may be written in upper or lower case, and paths with backslashes.

    Args:
        labels: the number of the class that each label stands for.

    Raises:
        DataError: it cannot be read, a column is missing, a value is not valid or an image is listed twice; names
            the file and every such row.
    """
    rows, problems = parse_manifest(path, labels)
    if problems:
        raise problems_error(path, problems)
    if not rows:
        raise DataError(f"{path} lists no images.", code="data.empty")
    return [row for _, row in rows]


def parse_manifest(path: Path, labels: Mapping[str, int]) -> tuple[list[tuple[int, Row]], list[tuple[int, str]]]:
    """Return the valid rows of a manifest and what is wrong with the others, each with the number of its row.

    Raises:
        DataError: it cannot be read, or a column is missing.
    """
    table = open_table(path, COLUMNS[:3])
    groups = group_names([record for _, record in table.records], known_columns(table.columns))
    rows: list[tuple[int, Row]] = []
    problems = list(table.problems)
    seen: dict[str, int] = {}
    for (number, record), group in zip(table.records, groups, strict=True):
        try:
            attributes = {column: value for column, value in record.items() if column not in COLUMNS}
            image, fold = image_path(record["image"]), as_fold(record["fold"])
            row = Row(image, _class_of(record["label"], labels), fold, group, attributes)
        except ValueError as e:
            problems.append((number, str(e)))
            continue
        if row.image in seen:
            problems.append((number, f"{row.image} is listed a second time (first: row {seen[row.image]})"))
            continue
        seen[row.image] = number
        rows.append((number, row))
    return rows, problems


def image_path(text: str) -> str:
    """Return the path of an image in a manifest with forward slashes.

    Raises:
        ValueError: it is not a path inside the data folder.
    """
    windows = PureWindowsPath(text)
    if windows.drive:
        raise ValueError(f"image {text!r} is a path on a Windows drive; give it relative to the data folder")
    image = PurePosixPath(windows.as_posix())
    if not text or image.is_absolute() or ".." in image.parts:
        raise ValueError(f"image {text!r} is not a path inside the data folder")
    return str(image)


def _class_of(text: str, labels: Mapping[str, int]) -> int:
    """Return the class of a label, in whatever case; raise ValueError naming the labels there are, and the nearest."""
    folded = {label.casefold(): label for label in labels}
    same = {number for label, number in labels.items() if label.casefold() == text.casefold()}
    if text in labels:
        return labels[text]
    if len(same) == 1:
        return same.pop()
    near = get_close_matches(text.casefold(), folded, n=1)
    advice = f"; did you mean {folded[near[0]]}?" if near else ""
    if text.isdigit() and not any(label.isdigit() for label in labels):
        advice = "; a number needs `classes` in site.yaml"
    raise ValueError(f"label {text!r} is not one of {', '.join(sorted(labels))}{advice}")
