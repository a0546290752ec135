"""Any common format becomes upright 8-bit RGB; what is not an image of a lesion says why."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmr_med.data.images import UnreadableImageError, decode
from tests.helpers.pictures import write_picture


def grey_ramp(maximum: int, dtype: type) -> np.ndarray:
    return np.tile(np.linspace(0, maximum, 16).astype(dtype), (16, 1))


@pytest.mark.parametrize("suffix", ["png", "jpg", "tiff", "bmp", "webp", "gif"])
def test_common_formats_give_the_same_picture(tmp_path: Path, suffix: str) -> None:
    write_picture(tmp_path / "reference.png", size=(60, 54))
    Image.open(tmp_path / "reference.png").save(tmp_path / f"image.{suffix}")
    expected, image = decode(tmp_path / "reference.png", 54), decode(tmp_path / f"image.{suffix}", 54)
    assert image.shape == (54, 60, 3)
    assert image.dtype == np.uint8
    assert np.abs(image.astype(int) - expected).mean() < 6


@pytest.mark.parametrize("name", ["grey.png", "grey.tiff"])
def test_sixteen_bits_of_grey_are_scaled_not_clipped(tmp_path: Path, name: str) -> None:
    Image.fromarray(grey_ramp(0xFFFF, np.uint16)).save(tmp_path / name)
    image = decode(tmp_path / name, 16)
    np.testing.assert_allclose(image[0, :, 0], np.linspace(0, 255, 16), atol=1)
    assert (image[..., 0] == image[..., 2]).all()


def test_transparent_pixels_become_white_and_opaque_ones_keep_their_colour(tmp_path: Path) -> None:
    pixels = np.zeros((16, 16, 4), dtype=np.uint8)
    pixels[:, 8:] = (200, 100, 50, 255)
    Image.fromarray(pixels).save(tmp_path / "rgba.png")
    image = decode(tmp_path / "rgba.png", 16)
    assert image[3, 3].tolist() == [255, 255, 255]
    assert image[3, 12].tolist() == [200, 100, 50]


def test_a_palette_with_transparency_is_read(tmp_path: Path) -> None:
    palette = Image.new("P", (16, 16), 1)
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.paste(0, (0, 0, 8, 16))
    palette.save(tmp_path / "palette.png", transparency=0)
    image = decode(tmp_path / "palette.png", 16)
    assert image[3, 3].tolist() == [255, 255, 255]
    assert image[3, 12].tolist() == [200, 100, 50]


@pytest.mark.parametrize("mode", ["L", "1", "CMYK"])
def test_other_colour_models_are_converted(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (20, 16), 0 if mode != "CMYK" else (0, 0, 0, 255)).save(tmp_path / "image.tiff")
    assert decode(tmp_path / "image.tiff", 16).max() <= 1


def test_a_huge_image_is_refused_by_its_size_in_words(tmp_path: Path) -> None:
    header = b"P6 40000 30000 255 "
    (tmp_path / "slide.ppm").write_bytes(header + b"\0" * 64)
    with pytest.raises(UnreadableImageError, match=r"million pixels are too many for a picture of a lesion"):
        decode(tmp_path / "slide.ppm", 16)


def test_an_image_of_one_pixel_is_no_picture(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    with pytest.raises(UnreadableImageError, match="1 x 1 pixels are too few"):
        decode(tmp_path / "dot.png", 16)


def test_the_camera_held_upright(tmp_path: Path) -> None:
    pixels = np.zeros((16, 24, 3), dtype=np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the left of the file is the top of the scene
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    image = decode(tmp_path / "turned.png", 16)
    assert image.shape == (24, 16, 3)
    assert image[:8].min() == 255
    assert image[8:].max() == 0


@pytest.mark.parametrize(
    ("size", "edge", "shape"),
    [((640, 480), 54, (54, 72)), ((30, 20), 54, (54, 81)), ((72, 54), 54, (54, 72)), ((53, 99), 54, (99, 53))],
)
def test_the_shorter_edge_gets_its_length(
    tmp_path: Path, size: tuple[int, int], edge: int, shape: tuple[int, int]
) -> None:
    write_picture(tmp_path / "image.jpg", size=size)
    assert decode(tmp_path / "image.jpg", edge).shape == (*shape, 3)


def test_an_image_of_the_right_size_keeps_its_pixels(tmp_path: Path) -> None:
    write_picture(tmp_path / "image.jpg", size=(298, 224))
    with Image.open(tmp_path / "image.jpg") as reference:
        np.testing.assert_array_equal(decode(tmp_path / "image.jpg", 224), np.asarray(reference))


def damaged(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def test_reasons_for_unreadable_files(tmp_path: Path) -> None:
    write_picture(tmp_path / "good.jpg", size=(300, 300))
    write_picture(tmp_path / "good.png", size=(300, 300))
    write_picture(tmp_path / "long.png", size=(2, 300))
    Image.fromarray(grey_ramp(1, np.float32)).save(tmp_path / "float.tiff")
    cases = {
        tmp_path / "missing.jpg": "No such file",
        tmp_path: "Is a directory",
        damaged(tmp_path, "empty.jpg", b""): "empty",
        damaged(tmp_path, "text.jpg", b"hello"): "not an image",
        damaged(tmp_path, "half.jpg", (tmp_path / "good.jpg").read_bytes()[:900]): "truncated",
        damaged(tmp_path, "half.png", (tmp_path / "good.png").read_bytes()[:900]): ".",
        tmp_path / "long.png": "too long",
        tmp_path / "float.tiff": "floating point",
    }
    for path, reason in cases.items():
        with pytest.raises(UnreadableImageError, match=reason):
            decode(path, 54)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL.*")
@pytest.mark.parametrize("suffix", ["png", "jpg", "tiff", "bmp", "gif", "webp"])
def test_random_damage_is_an_unreadable_image_or_still_an_image(tmp_path: Path, suffix: str) -> None:
    write_picture(tmp_path / f"image.{suffix}", size=(64, 64))
    original = (tmp_path / f"image.{suffix}").read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(60):
        content = bytearray(original[: generator.integers(1, len(original) + 1)])
        for position in generator.integers(0, len(content), 6):
            content[position] = generator.integers(0, 256)
        path = damaged(tmp_path, f"damaged.{suffix}", bytes(content))
        try:
            assert decode(path, 32).dtype == np.uint8
        except UnreadableImageError as e:
            assert str(e)
