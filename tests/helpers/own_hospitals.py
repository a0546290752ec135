"""Two hospitals with names and classes of their own, whose folders are as untidy as real ones."""

import csv
import unicodedata
from pathlib import Path

import numpy as np
from PIL import Image

from fedmr_med.data.demo.pictures import draw
from tests.helpers.dicoms import write_dicom

CLASSES = ("Melanom", "Nävus", "Basaliom")
SITE = """\
data: {source: manifest, root: .}
policy: {share_prototypes: true, min_cell_count: 1, share_metrics: per_class, training: {min_sites: 2}}
max_bad_fraction: 0.05
"""


def write_untidy_hospitals(out: Path) -> None:
    """Write ``nord-klinik`` with a table from a spreadsheet, and ``clinica-sur`` with one folder per class.

    The table has a BOM, semicolons, columns of its own, Windows paths and a missing file. Patients have several images;
    one image is there twice, one is cut off, one has 12 bits, and two are DICOM files, one of them without a suffix.
    """
    north, south = out / "nord-klinik", out / "clinica-sur"
    folder = north / "Bilder 2023"
    lines = ["Lfd. Nr;Datei;Diagnose;Patient;Bemerkung"]
    for label, count in ((0, 46), (1, 60)):
        for number, picture in enumerate(_drawn(label, 0, count)):
            # As macOS writes an umlaut, where the table has it as Windows does.
            name = unicodedata.normalize("NFD", f"Müller {label} {number}.JPG")
            _save(picture, folder / name)
            listed = unicodedata.normalize("NFC", name)
            remark = '"rechts; unscharf"' if number == 3 else ""
            lines.append(f"{len(lines)};Bilder 2023\\{listed}; {CLASSES[label]} ;P{label}-{number // 3};{remark}")
    first = folder / unicodedata.normalize("NFD", "Müller 0 0.JPG")
    (folder / "Kopie von Müller.jpg").write_bytes(first.read_bytes())
    (folder / "halb.jpg").write_bytes(first.read_bytes()[:700])
    grey = np.asarray(Image.open(first).convert("L")).astype(np.uint16) * 16
    Image.fromarray(grey).save(folder / "zwölf bit.png")
    write_dicom(folder / "IM0001", grey, PatientName="Müller^Anna", PatientID="4711")
    write_dicom(folder / "aufnahme.dcm", grey[::-1].copy())
    names = ("Kopie von Müller.jpg", "halb.jpg", "zwölf bit.png", "IM0001", "aufnahme", "verschollen.jpg")
    lines += [f"{len(lines)};{name};Melanom;P-{name};" for name in names]
    (north / "Auswertung Süd.csv").write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    for label, count in ((1, 30), (2, 44)):
        for number, picture in enumerate(_drawn(label, 1, count)):
            _save(picture, south / CLASSES[label] / f"foto {number}.png")


def _drawn(label: int, center: int, count: int) -> np.ndarray:
    generators = [np.random.default_rng((label, center, number)) for number in range(count)]
    return draw(label, center, generators, 64)


def _save(picture: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path)


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
