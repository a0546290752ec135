"""Two hospitals with names and classes of their own, whose folders are as untidy as real ones."""

import csv
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from tests.helpers.dicoms import write_dicom

CLASSES = ("MEL", "NV", "BCC")
SITE = """\
data: {source: manifest, root: .}
policy: {share_prototypes: true, share_metrics: per_class, training: {min_sites: 2}}
max_bad_fraction: 0.05
"""


def write_own_hospitals(isic: Path, out: Path) -> None:
    """Copy real images of two centres: ``nord-klinik`` with MEL and NV, ``clinica-sur`` with NV and BCC.

    The first has a Latin-1 manifest with semicolons and Windows paths, a picture in both folds, a truncated file and a
    DICOM image of 16 bits.
    """
    north, south = _chosen(isic, 3, {0: (14, 12), 1: (24, 12)}), _chosen(isic, 2, {1: (20, 12), 2: (14, 12)})
    for name, rows in (("nord-klinik", north), ("clinica-sur", south)):
        (out / name / "bilder").mkdir(parents=True)
        (out / name / "site.yaml").write_text(SITE)
        for image, _, _ in rows:
            shutil.copy(_source(isic, image), out / name / "bilder" / f"{image}.jpg")
    lines = ["Image;Label;Fold;Group"]
    lines += [
        f"bilder\\{image}.jpg; {label.lower()};{fold.capitalize()};Müller-{i}"
        for i, (image, label, fold) in enumerate(north)
    ]
    lines += ["bilder\\kopie.jpg;mel;TEST;Schröder", "bilder\\halb.jpg;nv;train;", "bilder\\bild16.dcm;mel;train;"]
    (out / "nord-klinik" / "manifest.csv").write_bytes("\r\n".join(lines).encode("latin-1"))
    bilder = out / "nord-klinik" / "bilder"
    first = next(image for image, label, fold in north if (label, fold) == ("MEL", "train"))
    shutil.copy(bilder / f"{first}.jpg", bilder / "kopie.jpg")
    whole = _source(isic, north[1][0]).read_bytes()
    (bilder / "halb.jpg").write_bytes(whole[: len(whole) // 3])
    grey = np.asarray(Image.open(_source(isic, north[2][0])).convert("L").resize((300, 225))).astype(np.uint16) * 257
    write_dicom(bilder / "bild16.dcm", grey, BitsStored=16, HighBit=15, Modality="OT")
    with (out / "clinica-sur" / "manifest.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("image", "label", "fold"))
        writer.writerows((f"bilder/{image}.jpg", label, fold) for image, label, fold in south)


def _source(isic: Path, image: str) -> Path:
    return isic / "ISIC_2019_Training_Input" / f"{image}.jpg"


def _chosen(isic: Path, center: int, counts: dict[int, tuple[int, int]]) -> list[tuple[str, str, str]]:
    """Return (image, class, fold) of the first images of a centre, as many as asked for each class and fold."""
    left = {
        (label, fold): count
        for label, pair in counts.items()
        for fold, count in zip(("train", "test"), pair, strict=True)
    }
    rows = []
    with (isic / "train_test_split").open() as stream:
        for row in csv.DictReader(stream):
            key = (int(row["target"]), row["fold"])
            if int(row["center"]) == center and left.get(key, 0) and _source(isic, row["image"]).exists():
                left[key] -= 1
                rows.append((row["image"], CLASSES[key[0]], key[1]))
    return rows


def write_small_hospitals(out: Path, classes: tuple[str, str, str], *, folds: bool = True) -> None:
    """Write two hospitals of 105 and 97 generated pictures, a fifth of each class in the test fold.

    Of the first class alone eleven test images are there, the fewest of which a score may leave by default.
    """
    for seed, (name, counts) in enumerate({"nord": (55, 30, 20), "sued": (56, 25, 16)}.items()):
        generator, rows = np.random.default_rng(seed), []
        for label, count in enumerate(counts):
            for number in range(count):
                picture = generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)
                path = out / name / "bilder" / f"{label}-{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture).resize((32, 32)).save(path)
                fold = "test" if number % 5 == 0 else "train"
                rows.append((f"bilder/{path.name}", classes[label], *([fold] if folds else [])))
        with (out / name / "manifest.csv" if folds else out / name / "tabelle.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([("image", "label", *(["fold"] if folds else [])), *rows])
        (out / name / "site.yaml").write_text(SITE)
