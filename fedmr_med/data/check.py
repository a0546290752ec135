"""Checking a hospital's folder before anybody trains on it: no kit, no job, no network needed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedmr_med.data.drawing import ENOUGH
from fedmr_med.data.folds import Row, find_similar, in_sentences, open_rows, shared_groups, too_many_bad
from fedmr_med.data.images import element_of, image_files, is_dicom
from fedmr_med.data.labels import labels_of
from fedmr_med.data.manifest import COLUMNS, MANIFEST, known_columns, parse_manifest, similar_columns
from fedmr_med.data.tables import by_problem, open_table
from fedmr_med.errors import DataError, FedMRError
from fedmr_med.sites import SITE_FILE, ManifestSource, SiteConfig, load_site

IMAGE_SIZE = 200
"""The size of the jobs that the toolkit brings: what a check decodes, their sites find in the cache."""


Outcome = Literal["pass", "note", "fix"]
Said = tuple[Outcome, str]


@dataclass(frozen=True)
class Finding:
    """One thing about a folder: it is as it should be, worth knowing, or to be fixed."""

    site: str
    outcome: Outcome
    message: str


def check_folder(folder: Path, classes: Sequence[str] = ()) -> Iterator[Finding]:
    """Check a hospital's folder, a manifest, or a folder of hospitals; open every image.

    Args:
        folder: holds a ``site.yaml`` or a ``manifest.csv``, or folders that do; or the table itself.
        classes: the classes of the job; none takes those that the table names.

    Raises:
        DataError: there is nothing to check.
    """
    for name, site in _sites(folder):
        try:
            if isinstance(site, FedMRError):
                raise site
            for outcome, message in _check(site, tuple(classes)):
                yield Finding(name, outcome, message)
        except FedMRError as e:
            yield Finding(name, "fix", str(e))


def _sites(folder: Path) -> Iterator[tuple[str, SiteConfig | FedMRError]]:
    """Yield name and settings of each hospital; where the settings are not valid, the error."""
    folder = folder.resolve()
    if folder.is_file():
        yield folder.parent.name, _plain(folder.parent, folder.name)
        return
    if not folder.is_dir():
        raise DataError(f"{folder} is neither a folder nor a table.", code="file.missing")
    folders = [folder] if _holds_images(folder) else [path for path in sorted(folder.iterdir()) if _holds_images(path)]
    if not folders:
        raise DataError(
            f"{folder} has no {MANIFEST} and no {SITE_FILE}, nor has a folder in it. "
            f"`fedmr-med data manifest {folder}` makes a manifest from folders of images.",
            code="site.none",
        )
    others = [path for path in sorted(folder.iterdir()) if path.is_dir() and path not in folders]
    for path in others if folders != [folder] else []:
        if image_files(path):
            yield (
                path.name,
                DataError(
                    f"{path} has images and no {MANIFEST}; `fedmr-med data manifest {path}` makes one.",
                    code="file.missing",
                ),
            )
    for path in folders:
        try:
            yield path.name, load_site(path / SITE_FILE) if (path / SITE_FILE).is_file() else _plain(path, MANIFEST)
        except FedMRError as e:
            yield path.name, e


def _plain(root: Path, manifest: str) -> SiteConfig:
    return SiteConfig(data=ManifestSource(source="manifest", root=root, manifest=Path(manifest)))


def _holds_images(folder: Path) -> bool:
    return (folder / SITE_FILE).is_file() or (folder / MANIFEST).is_file()


def _check(site: SiteConfig, classes: tuple[str, ...]) -> Iterator[Said]:
    if not isinstance(site.data, ManifestSource):
        raise DataError(
            f"{SITE_FILE}: data.source is {site.data.source}, which has no manifest.",
            code="config.conflict",
            key="data.source",
        )
    root, path = site.data.root, site.data.root / site.data.manifest
    names = classes or _own_classes(path, site)
    numbered, problems = parse_manifest(path, labels_of(site, names))
    rows = [row for _, row in numbered]
    for sentence in by_problem(problems):
        yield ("fix", f"{path.name}, {sentence}")
    if not rows:
        yield ("fix", f"{path} lists no images")
        return
    yield ("pass", _counts(rows, names))
    if shared := shared_groups(rows):
        outcome: Outcome = "note" if site.data.allow_shared_groups else "fix"
        listed = ", ".join(sorted(shared)[:3])
        yield (outcome, f"{len(shared)} patients or lesions have images in both folds: {listed}")
    yield from _columns(path)
    yield from _scarce(rows, names)
    if not any(row.fold == "train" for row in rows):
        yield ("fix", "no image is in the train fold")
    if not any(row.fold == "test" for row in rows):
        yield ("note", "no image is in the test fold: this hospital will have no score")
    yield from _images(root, rows, site)
    listed_images = {row.image for row in rows}
    if unlisted := [name for name in image_files(root) if name not in listed_images]:
        yield ("note", f"{len(unlisted)} images of the folder are not listed, such as {unlisted[0]}")


def _columns(path: Path) -> Iterator[Said]:
    """Name the columns that may say whose picture it is, and are not used."""
    table = open_table(path, COLUMNS[:3])
    records = [record for _, record in table.records]
    for column in similar_columns(table.columns, records, (*COLUMNS, *known_columns(table.columns))):
        yield ("note", f"column {column!r} is not used: call it group, if its values name patients")


def _scarce(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Said]:
    """Name the classes of which too few test images are there to leave a score."""
    counts = Counter(row.label for row in rows if row.fold == "test")
    few = [f"{names[label]} {counts[label]}" for label in sorted({row.label for row in rows}) if counts[label] < ENOUGH]
    if few:
        said = f"fewer than {ENOUGH} test images (min_class_count), so no score of the class leaves: {', '.join(few)}"
        yield ("note", said)


def _patients(root: Path, rows: Sequence[Row]) -> Iterator[Said]:
    """Say what DICOM files tell of patients: whose images are in both folds, where the table names none, and names."""
    folds: dict[str, set[str]] = {}
    named = []
    for row in rows:
        path = root / row.image
        if not is_dicom(path):
            continue
        if not row.group and (patient := element_of(path, "PatientID")):
            folds.setdefault(patient, set()).add(row.fold)
        if element_of(path, "PatientName"):
            named.append(row.image)
    shared = [patient for patient, found in folds.items() if len(found) > 1]
    if len(folds) > 1 and shared:
        said = f"{len(shared)} patients that DICOM files name (PatientID) have images in both folds: {shared[0]}"
        yield ("fix", said)
    if named:
        said = f"DICOM files carry the name of a patient ({len(named)}), such as {named[0]}: it is not used"
        yield ("note", said)


def _images(root: Path, rows: Sequence[Row], site: SiteConfig) -> Iterator[Said]:
    """Open every image: say which cannot be read, and which are the same."""
    opened = open_rows(root, rows, image_size=IMAGE_SIZE, cache=site.cache)
    for line in opened.skipped:
        yield ("note", f"cannot be read and is left out: {line}")
    if too_many_bad(opened.skipped, len(rows), site):
        allowed = f"max_bad_fraction: {site.max_bad_fraction:g} in {SITE_FILE}"
        yield ("fix", f"{len(opened.skipped)} of {len(rows)} images cannot be read; {allowed} allows less")
    if not opened.skipped:
        yield ("pass", f"all {len(rows)} images can be read")
    for duplicate in opened.duplicates:
        for sentence in in_sentences([duplicate]):
            yield ("note" if duplicate.kinds == ("names",) else "fix", sentence.rstrip("."))
    good = [i for i, error in enumerate(opened.images.errors) if error is None]
    yield from _patients(root, [rows[i] for i in good])
    train, test = ([i for i in good if rows[i].fold == fold] for fold in ("train", "test"))
    same = {(one.image, other.image) for d in opened.duplicates for one in d.rows for other in d.rows}
    similar = [
        (one, other)
        for one, other in find_similar(
            [rows[i] for i in train], [rows[i] for i in test], (opened.images[i] for i in (*train, *test))
        )
        if (one.image, other.image) not in same
    ]
    if similar:
        listed = "; ".join(f"{one.image} ~ {other.image}" for one, other in similar[:3])
        said = f"test and train pictures nearly agree ({len(similar)}); if they are one, give both a group"
        yield ("note", f"{said}: {listed}")
    if not opened.duplicates and not similar:
        yield ("pass", "no picture is there twice")


def _own_classes(path: Path, site: SiteConfig) -> tuple[str, ...]:
    """Return the classes that a hospital's settings or its table name."""
    if site.classes is not None:
        own = site.classes.values() if isinstance(site.classes, dict) else site.classes
        return tuple(dict.fromkeys(own))
    labels = {record["label"] for _, record in open_table(path, COLUMNS[:3]).records}
    by_name: dict[str, list[str]] = {}
    for label in sorted(filter(None, labels)):
        by_name.setdefault(label.casefold(), []).append(label)
    return tuple(names[0] for names in by_name.values())


def _counts(rows: Sequence[Row], names: Sequence[str]) -> str:
    parts = []
    for fold in ("train", "test"):
        counts = Counter(row.label for row in rows if row.fold == fold)
        held = ", ".join(f"{names[label]} {count}" for label, count in sorted(counts.items()))
        parts.append(f"{fold} {counts.total()}" + (f" ({held})" if held else ""))
    return f"{len(rows)} images: {'; '.join(parts)}"
