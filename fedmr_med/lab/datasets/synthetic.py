"""Stand-ins for datasets, small and in a format the readers know, for the smoke budget. They teach nothing."""

import json
from pathlib import Path

import numpy as np

from fedmr_med.data.datasets import Dataset
from fedmr_med.files import atomic_writer, write_text
from fedmr_med.lab.datasets.shakespeare import CHARACTERS
from fedmr_med.seeding import numpy_generator

_FOLDS = {"train": 20, "test": 4}  # images per class
_TEXTS, _EDGE = 6, 24


def write_synthetic(dataset: Dataset, folder: Path) -> Path:
    """Write a stand-in for ``dataset`` into ``folder``, unless it is there, and return the folder.

    Images are a fixed random pattern per class with noise on it.
    """
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    writers = {"images": _write_arrays, "photographs": _write_manifest, "texts": _write_texts}
    writers[dataset.kind](dataset, folder)
    write_text(folder / "complete", "")
    return folder


def _images(dataset: Dataset, edge: int, per_class: int, fold: str) -> tuple[np.ndarray, np.ndarray]:
    classes, channels = dataset.num_classes, dataset.channels
    patterns = numpy_generator(0, dataset.name).integers(0, 256, (classes, edge, edge, channels))
    generator = numpy_generator(0, dataset.name, fold)
    labels = generator.permutation(np.repeat(np.arange(classes), per_class))
    noise = generator.normal(0, 60, (len(labels), edge, edge, channels))
    return (patterns[labels] + noise).clip(0, 255).astype(np.uint8), labels


def _write_arrays(dataset: Dataset, folder: Path) -> None:
    arrays = {}
    for fold, per_class in _FOLDS.items():
        arrays[f"x_{fold}"], arrays[f"y_{fold}"] = _images(dataset, dataset.image_size, per_class, fold)
    with atomic_writer(folder / f"{dataset.name}.npz") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def _write_manifest(dataset: Dataset, folder: Path) -> None:
    from PIL import Image

    lines = ["image,label,fold"]
    for fold, per_class in _FOLDS.items():
        images, labels = _images(dataset, _EDGE, per_class, fold)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            Image.fromarray(image).save(folder / f"{fold}_{number}.png")
            lines.append(f"{fold}_{number}.png,{dataset.class_names[label]},{fold}")
    write_text(folder / "manifest.csv", "\n".join(lines) + "\n")


def _write_texts(dataset: Dataset, folder: Path) -> None:
    """Texts in LEAF's form, in which a character is followed by the next one of the alphabet."""
    alphabet, length = CHARACTERS, dataset.image_size
    for fold, count in (("train", _TEXTS), ("test", 2)):
        generator = numpy_generator(0, dataset.name, fold)
        data = {}
        for speaker in range(dataset.protocol.clients):
            starts = generator.integers(0, len(alphabet), count)
            texts = [_letters(alphabet, start, length) for start in starts]
            data[f"SPEAKER_{speaker}"] = {"x": texts, "y": [_letters(alphabet, start + length, 1) for start in starts]}
        content = {"users": list(data), "num_samples": [count] * len(data), "user_data": data}
        write_text(folder / fold / "all_data.json", json.dumps(content))


def _letters(alphabet: str, start: int, length: int) -> str:
    return "".join(alphabet[(start + offset) % len(alphabet)] for offset in range(length))
