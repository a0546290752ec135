"""The transforms depend on image and seed alone and equal FLamby's."""

import os
import pickle
import random
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from fedmr_med.data import fast_isic
from fedmr_med.data.transforms import build, edge_for, normalisation
from tests.helpers.errors import raises

pytestmark = pytest.mark.filterwarnings("ignore:Flip is deprecated")

NAMES = ("isic", "crop_flip", "plain", "unit", "reflect_crop_flip", "crop_flip_rotate")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(224, 298), (299, 224), (180, 160)])
def test_the_fast_augmentation_has_the_distribution_of_flambys(shape: tuple[int, int]) -> None:
    """Brightness, contrast, where the picture has gone, and holes, on a lesion off the centre of a shaded skin."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    lesion = 90 * (np.hypot(rows - 0.4 * shape[0], columns - 0.3 * shape[1]) < 0.2 * shape[0])
    image = np.stack([230 - 0.2 * columns - lesion, 60 + 0.4 * rows, 150 - 0.3 * lesion], axis=-1).astype(np.uint8)
    known, fast = (
        np.array([_statistics(build("isic", train=train, image_size=64)(image, seed)) for seed in seeds])
        for train, seeds in ((True, range(700)), ("fast", range(10_000, 10_700)))
    )
    for name, a, b in zip(_STATISTICS, known.T, fast.T, strict=True):
        assert ks_2samp(a, b).pvalue > 0.01, name
    assert len({float(value) for value in fast[:, 0]}) > 600, "an image of its own for each seed"


_STATISTICS = ("brightness", "contrast", "colour", "upper half", "left half", "a corner", "holes")


def _statistics(pixels: np.ndarray) -> list[float]:
    middle = pixels.shape[1] // 2
    hole = (np.array((0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)).astype(np.float32)
    return [
        float(pixels.mean()),
        float(pixels.std()),
        float((pixels[0] - pixels[1]).mean()),
        float(pixels[:, :middle].mean() - pixels[:, middle:].mean()),
        float(pixels[:, :, :middle].mean() - pixels[:, :, middle:].mean()),
        float(pixels[:, :middle, :middle].mean()),
        float(np.all(np.abs(pixels + hole[:, None, None]) < 1e-4, axis=0).mean()),
    ]


@pytest.mark.parametrize("flipped", [False, True])
def test_the_fast_augmentation_moves_a_picture_as_albumentations_does(flipped: bool) -> None:
    """The same angle, scale and crop give the same picture, but for interpolating once instead of three times."""
    albumentations = quiet_albumentations()
    import cv2

    rows, columns = np.mgrid[:224, :298]
    image = np.stack([columns * 0.8, rows * 0.9, 60 + 0.2 * (rows + columns)], axis=-1).astype(np.uint8)
    # In the order of the draws: scale by 1.05, rotate by 30 degrees, flip left to right or not, shear, crop.
    numbers = iter([0.0, 0.0, 0.0 if flipped else 0.9, 0.0, 0.5, 0.25])
    values = {(-0.07, 0.07): 0.05, (-50.0, 50.0): 30.0}
    draw = SimpleNamespace(
        random=lambda: next(numbers), uniform=lambda low, high: values[low, high], randint=lambda low, high: 1
    )
    found = fast_isic._crop(image, 200, draw)  # type: ignore[arg-type]
    steps = [
        albumentations.RandomScale((0.05, 0.05), p=1),
        albumentations.Rotate((30, 30), p=1),
        *([albumentations.HorizontalFlip(p=1)] if flipped else []),
        albumentations.Affine(shear=0.1, p=1, mode=cv2.BORDER_REFLECT_101),
    ]
    warped = albumentations.Compose(steps)(image=image)["image"]
    tall, wide = warped.shape[:2]
    top, left = int((tall - 199) * 0.5), int((wide - 199) * 0.25)
    expected = warped[top : top + 200, left : left + 200]
    assert np.abs(found.astype(int) - expected).mean() < 1.0


def quiet_albumentations() -> Any:
    """Import the package as the transforms do: without asking the network for a newer version."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    import albumentations

    return albumentations


def picture(height: int = 224, width: int = 298, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize(("size", "edge"), [(200, 224), (48, 54), (64, 72), (1, 1)])
def test_the_edge_keeps_flambys_proportion(size: int, edge: int) -> None:
    assert edge_for(size) == edge


@pytest.mark.parametrize(("size", "shape"), [(200, (224, 298)), (200, (299, 224)), (200, (200, 200)), (48, (54, 77))])
def test_the_isic_test_transform_is_flambys_bit_for_bit(size: int, shape: tuple[int, int]) -> None:
    albumentations = quiet_albumentations()
    image = picture(*shape)
    reference = albumentations.Compose([albumentations.CenterCrop(size, size), albumentations.Normalize()])
    expected = np.transpose(reference(image=image)["image"], (2, 0, 1)).astype(np.float32)
    np.testing.assert_array_equal(build("isic", train=False, image_size=size)(image, 0), expected)


@pytest.mark.parametrize("seed", range(8))
def test_the_isic_train_transform_is_flambys_with_the_holes_drawn_per_image(seed: int) -> None:
    albumentations = quiet_albumentations()
    image = picture()
    holes = {"num_holes_range": (1, 8), "hole_height_range": (16, 16), "hole_width_range": (16, 16)}
    reference = albumentations.Compose(
        [
            albumentations.RandomScale(0.07),
            albumentations.Rotate(50),
            albumentations.RandomBrightnessContrast(0.15, 0.1),
            albumentations.Flip(p=0.5),
            albumentations.Affine(shear=0.1),
            albumentations.RandomCrop(200, 200),
            albumentations.CoarseDropout(**holes),
            albumentations.Normalize(),
        ]
    )
    random.seed(seed)
    expected = np.transpose(reference(image=image)["image"], (2, 0, 1)).astype(np.float32)
    np.testing.assert_array_equal(build("isic", train=True, image_size=200)(image, seed), expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_result_depends_on_image_and_seed_alone(name: str) -> None:
    transform = build(name, train=True, image_size=28)
    image = picture(32, 40)
    random.seed(1)
    np.random.seed(1)
    first = transform(image, 5)
    random.seed(2)
    np.random.seed(2)
    random_state, numpy_state = random.getstate(), np.random.get_state()
    np.testing.assert_array_equal(transform(image, 5), first)
    assert random.getstate() == random_state
    assert np.array_equal(np.random.get_state()[1], numpy_state[1])
    assert len({transform(image, seed).tobytes() for seed in range(12)}) == (1 if name in ("plain", "unit") else 12)


def test_the_global_generator_is_restored_after_an_error() -> None:
    state = random.getstate()
    with pytest.raises(Exception):  # noqa: B017  # whatever albumentations raises for an image without pixels
        build("isic", train=True, image_size=8)(np.zeros((9, 9), dtype=np.complex64), 0)  # type: ignore[arg-type]
    assert random.getstate() == state


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(NAMES),
    train=st.booleans(),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    size=st.integers(1, 48),
    seed=st.integers(0, 2**63 - 1),
)
def test_any_size_gives_a_finite_square(name: str, train: bool, height: int, width: int, size: int, seed: int) -> None:
    out = build(name, train=train, image_size=size)(picture(height, width), seed)
    assert out.shape == (3, size, size)
    assert out.dtype == np.float32
    assert np.isfinite(out).all()


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", ["crop_flip", "plain"])
@pytest.mark.parametrize("channels", [1, 3])
def test_benchmark_transforms_take_one_and_three_channels(name: str, train: bool, channels: int) -> None:
    image = picture(28, 28, channels)
    out = build(name, train=train, image_size=28)(image, 3)
    assert out.shape == (channels, 28, 28)
    assert -1 <= out.min() < out.max() <= 1
    if not (train and name == "crop_flip"):
        np.testing.assert_allclose(out, image.transpose(2, 0, 1) / 127.5 - 1, atol=1e-6)


def test_the_imagenet_transform_scales_and_makes_grey_colour() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (28, 28, 1), dtype=np.uint8)
    colour = np.repeat(grey, 3, axis=2)
    transform = build("imagenet", train=True, image_size=28)
    assert np.array_equal(transform(grey, 0), transform(colour, 1))
    assert np.array_equal(transform(colour, 0), build("isic", train=False, image_size=28)(colour, 0))
    large = build("imagenet", train=False, image_size=96)(grey, 0)
    assert large.shape == (3, 96, 96) and np.isfinite(large).all()


def test_crop_flip_gives_shifted_and_flipped_views() -> None:
    image = picture(8, 8, 1)
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))[:, :, 0] / 127.5 - 1
    views = {
        np.ascontiguousarray(padded[y : y + 8, x : x + 8][:, ::step]).astype(np.float32).round(4).tobytes()
        for y in range(9)
        for x in range(9)
        for step in (1, -1)
    }
    transform = build("crop_flip", train=True, image_size=8)
    for seed in range(30):
        assert transform(image, seed)[0].round(4).tobytes() in views


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_transforms_can_be_pickled(name: str, train: bool) -> None:
    transform = build(name, train=train, image_size=16)
    copy = pickle.loads(pickle.dumps(transform))
    np.testing.assert_array_equal(copy(picture(20, 20), 1), transform(picture(20, 20), 1))


def test_an_unknown_name_is_an_error_that_names_the_key() -> None:
    with raises("config.unknown-name", "task.transform"):
        build("nope", train=True, image_size=8)


def test_the_test_transform_does_not_import_albumentations() -> None:
    code = (
        "import sys, numpy as np; from fedmr_med.data.transforms import build;"
        "build('isic', train=False, image_size=8)(np.zeros((9, 9, 3), np.uint8), 0);"
        "assert 'albumentations' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_authors_transforms() -> None:
    generator = np.random.default_rng(0)
    grey = generator.integers(0, 256, (28, 28, 1), dtype=np.uint8)
    for train in (True, False):
        unit = build("unit", train=train, image_size=28)(grey, 5)
        np.testing.assert_allclose(unit[0], grey[..., 0] / 255, atol=1e-6)
    assert normalisation("unit", 1) == {"mean": [0.0], "std": [1.0]}
    white = np.full((32, 32, 3), 255, np.uint8)
    for seed in range(20):
        assert build("reflect_crop_flip", train=True, image_size=32)(white, seed).min() == 1, "no black border"
    assert min(build("crop_flip", train=True, image_size=32)(white, seed).min() for seed in range(20)) == -1
    # A line through the centre turns by at most 15 degrees.
    line = np.zeros((64, 64, 1), np.uint8)
    line[31:33] = 255
    slopes = []
    for seed in range(40):
        seen = build("crop_flip_rotate", train=True, image_size=64)(line, seed)[0] > 0
        rows, columns = np.nonzero(seen)
        slopes.append(np.degrees(np.arctan(np.polyfit(columns, rows, 1)[0])))
    assert 8 < max(slopes) < 16
    assert -16 < min(slopes) < -8
