"""Fed-ISIC2019 as FLamby prepares it: one folder of images and a table that says which centre holds which."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from fedmr_med.config import TaskConfig
from fedmr_med.data.base import SiteData
from fedmr_med.data.folds import Row, as_fold, site_data
from fedmr_med.data.preparation import check_prepared
from fedmr_med.data.tables import read_table
from fedmr_med.errors import DataError
from fedmr_med.sites import ISIC_VARIABLE, FlambyIsicSource, SiteConfig

HOSPITALS = ("bcn", "vidir-molemax", "vidir-modern", "rosendahl", "msk", "vienna-dias")
"""The hospitals behind centres 0 to 5."""

DIAGNOSES: Mapping[str, str] = {
    "MEL": "melanoma",
    "NV": "melanocytic nevus",
    "BCC": "basal cell carcinoma",
    "AK": "actinic keratosis",
    "BKL": "benign keratosis",
    "DF": "dermatofibroma",
    "VASC": "vascular lesion",
    "SCC": "squamous cell carcinoma",
}
"""What the names of the classes stand for, in the order of the labels."""

CLASS_NAMES = tuple(DIAGNOSES)

# Images per centre (row) and class (column) in FLamby's split.
TRAIN_COUNTS = (
    (2279, 3363, 2245, 606, 923, 97, 87, 330),
    (20, 2977, 2, 0, 96, 23, 45, 0),
    (533, 1470, 174, 20, 379, 40, 64, 11),
    (276, 649, 223, 86, 406, 20, 3, 144),
    (166, 349, 0, 0, 140, 0, 0, 0),
    (58, 276, 5, 0, 6, 4, 2, 0),
)
TEST_COUNTS = (
    (578, 843, 564, 131, 215, 27, 24, 101),
    (4, 743, 0, 0, 28, 7, 9, 0),
    (147, 362, 37, 1, 96, 11, 18, 0),
    (66, 154, 73, 23, 84, 10, 0, 42),
    (49, 66, 0, 0, 49, 0, 0, 0),
    (9, 74, 0, 0, 4, 0, 1, 0),
)

RAW_FOLDER = "ISIC_2019_Training_Input"
PREPARED_FOLDER = "ISIC_2019_Training_Input_preprocessed"
SPLIT_FILE = "train_test_split"
LESIONS_FILE = "HAM10000_metadata.csv"
_SPLIT_IN_FLAMBY = Path("flamby/datasets/fed_isic2019/dataset_creation_scripts", SPLIT_FILE)


def load_flamby_isic(source: FlambyIsicSource, task: TaskConfig, site: SiteConfig) -> SiteData:
    """Return the two folds of one centre, in the order of FLamby's table.

    Raises:
        DataError: the folder or a table is missing, the table is not valid, the classes of the task are not
            those of ISIC2019, or too many images cannot be read.
    """
    check_names(task.class_names)
    root = find_root(source.root)
    split = find_split(root, split_file=source.split_file, flamby=source.flamby)
    stat = split.stat()
    by_lesion = source.without_leaked or source.test_part is not None
    lesions = _lesions_in(root, "without_leaked" if source.without_leaked else "test_part") if by_lesion else None
    centers = _split_rows(split, stat.st_mtime_ns, stat.st_size, lesions)
    rows = centers[source.center]
    if source.test_part is not None:
        rows = dealt_by_lesion(rows, source.test_part, source.parts)
    elif source.without_leaked:
        left_out = leaked_images(centers)
        rows = [row for row in rows if row.image not in left_out]
    check_prepared(root, task.preparation)
    return site_data(root / PREPARED_FOLDER, rows, task, site, prepared=True)


def check_names(class_names: Sequence[str], what: str = "Fed-ISIC2019") -> None:
    """Raise DataError where a task has other classes than ISIC2019, or has them in another order."""
    if tuple(class_names) != CLASS_NAMES:
        raise DataError(
            f"{what} has the classes {', '.join(CLASS_NAMES)}, and the job (task.class_names) "
            f"{', '.join(class_names)}.",
            code="data.class-names",
            key="task.class_names",
        )


@lru_cache(maxsize=1)
def _split_rows(path: Path, modified: int, size: int, lesions: Path | None) -> list[list[Row]]:
    """Read FLamby's table once for all centres of a process, and again when the file has changed."""
    return read_split(path, read_lesions(lesions) if lesions else None)


def _lesions_in(root: Path, key: str) -> Path:
    if not (root / LESIONS_FILE).is_file():
        raise DataError(
            f"{root / LESIONS_FILE} does not exist: data.{key} needs the lesion of each image.",
            code="file.missing",
            key=f"data.{key}",
        )
    return root / LESIONS_FILE


def dealt_by_lesion(rows: Iterable[Row], test_part: int, parts: int) -> list[Row]:
    """Return rows with folds for cross-validation: of the parts of all lesions, one is the test fold.

    A lesion's part depends on its name alone, so that all centres agree on it; an image without one stands for itself.
    """

    def part(row: Row) -> int:
        digest = hashlib.blake2b((row.group or row.image).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % parts

    return [replace(row, fold="test" if part(row) == test_part else "train") for row in rows]


def leaked_images(centers: Iterable[Iterable[Row]]) -> set[str]:
    """Return the test images of a lesion that any of the centres has in its train fold."""
    rows = [row for center in centers for row in center]
    trained = {row.group for row in rows if row.fold == "train" and row.group}
    return {row.image for row in rows if row.fold == "test" and row.group in trained}


def find_root(root: Path | None) -> Path:
    """Return the folder with the prepared images, by default the one that ``FEDMR_MED_ISIC`` names.

    Raises:
        DataError: none is given, or it is not a prepared folder.
    """
    if root is None:
        named = os.environ.get(ISIC_VARIABLE)
        if not named:
            raise DataError(
                f"No folder with Fed-ISIC2019: set data.root in site.yaml, or {ISIC_VARIABLE}.",
                code="data.missing",
                key="data.root",
            )
        root = Path(named).expanduser()
    if not (root / PREPARED_FOLDER).is_dir():
        raise DataError(
            f"{root / PREPARED_FOLDER} does not exist: check data.root in site.yaml, "
            f"or make it with `fedmr-med data prepare-isic`.",
            code="file.missing",
            key="data.root",
        )
    return root


def find_split(root: Path, *, split_file: Path | None = None, flamby: Path | None = None) -> Path:
    """Return FLamby's table: the one that is named, or the one in ``root``, or the one in a checkout of FLamby.

    Raises:
        DataError: it is not there.
    """
    if split_file is not None:
        candidates = [split_file]
    else:
        candidates = [root / SPLIT_FILE, *([flamby / _SPLIT_IN_FLAMBY] if flamby else [])]
    for path in candidates:
        if path.is_file():
            return path
    looked = ", ".join(str(path) for path in candidates)
    raise DataError(
        f"FLamby's {SPLIT_FILE} was not found (looked for: {looked}). Copy it from a FLamby checkout, "
        "or set data.split_file or data.flamby in site.yaml.",
        code="file.missing",
        key="data.split_file",
    )


def read_split(path: Path, groups: Mapping[str, str] | None = None) -> list[list[Row]]:
    """Read FLamby's table and return the rows of each centre, in file order; images are ``<name>.jpg``.

    Args:
        groups: the lesion that an image shows, by the image's name, where it is known.

    Raises:
        DataError: the table cannot be read, a column is missing, or a value is out of range; names file and row.
    """
    centers: list[list[Row]] = [[] for _ in HOSPITALS]
    for where, record in read_table(path, required=("image", "target", "center", "fold")):
        image = record["image"]
        label = _number(record["target"], len(CLASS_NAMES), "target", where)
        center = _number(record["center"], len(HOSPITALS), "center", where)
        try:
            fold = as_fold(record["fold"])
        except ValueError as e:
            raise DataError(f"{where}: {e}.", code="data.row", key="fold") from e
        centers[center].append(Row(f"{image}.jpg", label, fold, (groups or {}).get(image, "")))
    return centers


def read_centers(
    root: Path, split_file: Path | None = None, flamby: Path | None = None, lesions: Path | None = None
) -> list[list[Row]]:
    """Return the rows of each centre of a folder, with the lesions where HAM10000's metadata are named or lie there.

    Raises:
        DataError: a table is missing or not valid.
    """
    if lesions is None and (root / LESIONS_FILE).is_file():
        lesions = root / LESIONS_FILE
    split = find_split(root, split_file=split_file, flamby=flamby)
    return read_split(split, read_lesions(lesions) if lesions else None)


def read_lesions(path: Path) -> dict[str, str]:
    """Read HAM10000's metadata and return the lesion of each image, by the image's name.

    Raises:
        DataError: the file cannot be read or has other columns.
    """
    return {
        record["image_id"]: record["lesion_id"] for _, record in read_table(path, required=("lesion_id", "image_id"))
    }


def _number(text: str, count: int, column: str, where: str) -> int:
    if not text.isdecimal() or int(text) >= count:
        raise DataError(
            f"{where}: {column} is {text!r}, not a number from 0 to {count - 1}.", code="data.row", key=column
        )
    return int(text)
