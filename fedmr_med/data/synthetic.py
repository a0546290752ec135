"""Stand-ins for datasets, small and in a format the readers know, for the smoke budget. They teach nothing."""

import json
from pathlib import Path

import numpy as np

from fedmr_med.data.benchmark import MANIFESTS, SHAKESPEARE, dataset_info
from fedmr_med.data.shakespeare import CHARACTERS, TEXT_LENGTH
from fedmr_med.files import atomic_writer, write_text
from fedmr_med.seeding import numpy_generator

TRAIN_PER_CLASS, TEST_PER_CLASS = 20, 4
_SPEAKERS, _TEXTS, _EDGE = 50, 6, 24


def write_synthetic(dataset: str, folder: Path) -> Path:
    """Write a stand-in for ``dataset`` into ``folder``, unless it is there, and return the folder.

    Images are a fixed random pattern per class with noise on it.
    """
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if dataset == SHAKESPEARE:
        _write_texts(folder)
    elif dataset in MANIFESTS:
        _write_manifest(dataset, folder)
    else:
        _write_arrays(dataset, folder)
    write_text(folder / "complete", "")
    return folder


def _images(dataset: str, edge: int, per_class: int, fold: str) -> tuple[np.ndarray, np.ndarray]:
    info = dataset_info(dataset)
    patterns = numpy_generator(0, dataset).integers(0, 256, (info.num_classes, edge, edge, info.channels))
    generator = numpy_generator(0, dataset, fold)
    labels = generator.permutation(np.repeat(np.arange(info.num_classes), per_class))
    noise = generator.normal(0, 60, (len(labels), edge, edge, info.channels))
    return (patterns[labels] + noise).clip(0, 255).astype(np.uint8), labels


def _write_arrays(dataset: str, folder: Path) -> None:
    edge = dataset_info(dataset).image_size
    x_train, y_train = _images(dataset, edge, TRAIN_PER_CLASS, "train")
    x_test, y_test = _images(dataset, edge, TEST_PER_CLASS, "test")
    with atomic_writer(folder / f"{dataset}.npz") as stream:
        np.savez(stream, allow_pickle=False, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def _write_manifest(dataset: str, folder: Path) -> None:
    from PIL import Image

    names = dataset_info(dataset).class_names
    lines = ["image,label,fold"]
    for fold, per_class in (("train", TRAIN_PER_CLASS), ("test", TEST_PER_CLASS)):
        images, labels = _images(dataset, _EDGE, per_class, fold)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            Image.fromarray(image).save(folder / f"{fold}_{number}.png")
            lines.append(f"{fold}_{number}.png,{names[label]},{fold}")
    write_text(folder / "manifest.csv", "\n".join(lines) + "\n")


def _write_texts(folder: Path) -> None:
    """Texts in LEAF's form, in which a character is followed by the next one of the alphabet."""
    for fold, count in (("train", _TEXTS), ("test", 2)):
        generator = numpy_generator(0, SHAKESPEARE, fold)
        data = {}
        for speaker in range(_SPEAKERS):
            starts = generator.integers(0, len(CHARACTERS), count)
            texts = [_alphabet(start, TEXT_LENGTH) for start in starts]
            data[f"SPEAKER_{speaker}"] = {"x": texts, "y": [_alphabet(start + TEXT_LENGTH, 1) for start in starts]}
        content = {"users": list(data), "num_samples": [count] * len(data), "user_data": data}
        write_text(folder / fold / "all_data.json", json.dumps(content))


def _alphabet(start: int, length: int) -> str:
    return "".join(CHARACTERS[(start + offset) % len(CHARACTERS)] for offset in range(length))
