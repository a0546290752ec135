"""What the data path costs: images per second against a plain Pillow + albumentations loader, and FLamby's."""

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmr_med.data import transforms
from fedmr_med.data.base import Fold
from fedmr_med.data.cache import open_images
from fedmr_med.data.loading import Batches
from fedmr_med.lab.perf.measure import CPU, WALL, Figure, interleaved, ratios
from fedmr_med.lab.perf.workload import Case, Client

_SEED = 0


def write_images(folder: Path, count: int, edge: int) -> list[str]:
    """Write photographs of lesions, drawn as for the demo, as JPEG files of 4:3 with a shorter edge of ``edge``."""
    from PIL import Image

    from fedmr_med.data.demo.pictures import draw
    from fedmr_med.seeding import numpy_generator

    names = [f"{number}.jpg" for number in range(count)]
    width = round(edge * 4 / 3)
    for number, name in enumerate(names):
        picture = draw(number % 8, number % 6, [numpy_generator("perf", number)], width)[0]
        Image.fromarray(picture[:edge]).save(folder / name, quality=95)
    return names


def loader_speedups(
    folder: Path, *, images: int, image_size: int, batch_size: int, repetitions: int, flamby: Path | None = None
) -> list[Figure]:
    """Measure a pass over images through the data path, cold and warm, against the plain loader and FLamby's.

    FLamby's images have 200 pixels; ``flamby`` is a checkout to compare with, and ``folder`` is empty.
    """
    names = write_images(folder, images, transforms.edge_for(image_size))

    def cold(augmented: transforms.Augment) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            _pass(_batches(folder, names, Path(cache), image_size, batch_size, augmented=augmented))

    figures = []
    kinds: dict[str, transforms.Augment] = {"train": True, "fast": "fast", "test": False}
    for kind, augmented in kinds.items():
        warm = _batches(folder, names, folder / "warm", image_size, batch_size, augmented=augmented)
        candidates: dict[str, Callable[[], object]] = {
            "warm": partial(_pass, warm),
            "cold": partial(cold, augmented),
            "plain": partial(_loader_pass, _plain_images(folder, names, image_size, bool(augmented)), batch_size),
        }
        if flamby is not None:
            theirs = _flamby_images(flamby, folder, names, bool(augmented))
            candidates["flamby"] = partial(_loader_pass, theirs, batch_size)
        seconds = interleaved(candidates, repetitions)
        case = f"{'fast train' if kind == 'fast' else kind} transform, {image_size} px, batch {batch_size}, no workers"
        ours, plain = f"images per second of {CPU}", "of a plain Pillow + albumentations loader"
        compared = {
            "loader_speedup": ("plain", "warm", f"{ours} / {plain}"),
            "loader_speedup_cold": ("plain", "cold", f"{ours}, decoding into the cache in full / {plain}"),
            "loader_speedup_flamby": ("flamby", "warm", f"{ours} / of FLamby's FedIsic2019 in torch's DataLoader"),
        }
        figures += [
            Figure.of(name, kind, f"{case}, {cache} cache", text, ratios(seconds, base, cache))
            for name, (base, cache, text) in compared.items()
            if base in candidates
        ]
    return figures


def data_wait(folder: Path, case: Case, images: int) -> list[Figure]:
    """Measure which share of its time a training loop waits for one worker's batches, warm, from the second on."""
    names = write_images(folder, images, transforms.edge_for(case.image_size))
    batches = _batches(folder, names, folder / "warm", case.image_size, case.batch_size, augmented=True, workers=1)
    client = Client(case, "fedmr")
    client.prepare_steps()
    shares = []
    for epoch in range(3):
        waited = 0.0
        iterator = batches.epoch(_SEED, epoch, shuffle=True, drop_single=True)
        pair: tuple[torch.Tensor, torch.Tensor] | None = next(iterator)
        started = time.perf_counter()
        while pair is not None:
            client.step(pair)
            asked = time.perf_counter()
            pair = next(iterator, None)
            waited += time.perf_counter() - asked
        shares.append(waited / (time.perf_counter() - started))
    compared = f"{WALL} a training loop waits for its next batch / all of it, 1 worker"
    return [Figure.of("data_wait", "fedmr", str(case), compared, shares)]


def _batches(
    folder: Path,
    names: list[str],
    cache: Path,
    image_size: int,
    batch_size: int,
    *,
    augmented: transforms.Augment,
    workers: int = 0,
) -> Batches:
    images = open_images(folder, names, edge=transforms.edge_for(image_size), folder=cache)
    fold = Fold(images, np.arange(len(names), dtype=np.int64) % 8)
    transform = transforms.build("isic", train=augmented, image_size=image_size)
    return Batches(fold, transform, batch_size=batch_size, workers=workers)


def _pass(batches: Batches) -> None:
    deque(batches.epoch(_SEED, shuffle=False), maxlen=0)


class _PlainImages(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """A dataset as one writes it by hand: open the file, augment, normalise, move the channels to the front."""

    def __init__(self, folder: Path, names: list[str], transform: Any):
        self.folder, self.names, self.transform = folder, names, transform

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        image = np.asarray(Image.open(self.folder / self.names[index]).convert("RGB"))
        pixels = self.transform(image=image)["image"].transpose(2, 0, 1).astype(np.float32)
        return torch.from_numpy(pixels), index % 8


def _plain_images(folder: Path, names: list[str], image_size: int, augmented: bool) -> _PlainImages:
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    import albumentations

    crop = [albumentations.CenterCrop(image_size, image_size)]
    steps = transforms.isic_augmentation(image_size).transforms if augmented else crop
    return _PlainImages(folder, names, albumentations.Compose([*steps, albumentations.Normalize()]))


def _flamby_images(checkout: Path, folder: Path, names: list[str], augmented: bool) -> Any:
    """Return FLamby's own dataset with its own transforms, over the same files."""
    from fedmr_med.lab.flamby.checkout import find_dataset

    images = find_dataset(checkout, "fed_isic2019").FedIsic2019(train=augmented, data_path=str(folder))
    images.image_paths = [str(folder / name) for name in names]
    images.targets = [index % 8 for index in range(len(names))]
    return images


def _loader_pass(dataset: Any, batch_size: int) -> None:
    deque(torch.utils.data.DataLoader(dataset, batch_size=batch_size), maxlen=0)
