"""DICOM pictures come out as a screen would show them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedmr_med.data.images import UnreadableImageError, decode, read_rgb
from tests.helpers.dicoms import write_dicom

RAMP = np.tile(np.arange(0, 4096, 64, dtype=np.uint16), (64, 1))  # 12 bits, dark to bright


def shown(path: Path) -> np.ndarray:
    return np.asarray(read_rgb(path))[0, :, 0]


def test_twelve_bits_fill_the_screen(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", RAMP)
    assert shown(tmp_path / "a.dcm")[0] == 0
    assert shown(tmp_path / "a.dcm")[-1] == 255
    assert decode(tmp_path / "a.dcm", 32).shape == (32, 32, 3)


def test_a_window_decides_what_is_black_and_white(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", RAMP, WindowCenter=1024, WindowWidth=1024)
    found = shown(tmp_path / "a.dcm")
    assert (found[RAMP[0] <= 512] == 0).all()
    assert (found[RAMP[0] >= 1536] == 255).all()
    assert found[RAMP[0] == 1024][0] in (127, 128)


def test_the_first_of_several_windows_counts_after_the_rescaling(tmp_path: Path) -> None:
    window = {"WindowCenter": [0, 500], "WindowWidth": [2048, 10], "RescaleSlope": 1, "RescaleIntercept": -1024}
    write_dicom(tmp_path / "a.dcm", RAMP, **window)
    assert shown(tmp_path / "a.dcm")[RAMP[0] == 1024][0] in (127, 128)
    assert shown(tmp_path / "a.dcm")[-1] == 255


def test_monochrome1_is_inverted(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", RAMP, PhotometricInterpretation="MONOCHROME1")
    assert shown(tmp_path / "a.dcm")[0] == 255
    assert shown(tmp_path / "a.dcm")[-1] == 0


@pytest.mark.parametrize("name", ["a.dcm", "IM0001"])
def test_colour_and_files_without_a_suffix(tmp_path: Path, name: str) -> None:
    pixels = np.zeros((20, 24, 3), dtype=np.uint8)
    pixels[..., 0], pixels[..., 2] = 200, 50
    write_dicom(tmp_path / name, pixels)
    assert np.asarray(read_rgb(tmp_path / name))[3, 3].tolist() == [200, 0, 50]


@pytest.mark.parametrize("frames", [None, 3])
def test_what_holds_no_single_picture_is_named(tmp_path: Path, frames: int | None) -> None:
    changes: dict[str, Any] = {"NumberOfFrames": frames} if frames else {"PixelData": None}
    write_dicom(tmp_path / "a.dcm", np.stack([RAMP] * (frames or 1)) if frames else RAMP, **changes)
    with pytest.raises(UnreadableImageError, match="frames" if frames else "no picture"):
        read_rgb(tmp_path / "a.dcm")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", RAMP)
    (tmp_path / "a.dcm").write_bytes((tmp_path / "a.dcm").read_bytes()[:1000])
    with pytest.raises(UnreadableImageError):
        read_rgb(tmp_path / "a.dcm")


@pytest.mark.parametrize(("most", "white"), [(4095, 255), (65535, 255), (2000, 125), (255, 255)])
def test_twelve_bits_in_a_png_of_sixteen_are_not_black(tmp_path: Path, most: int, white: int) -> None:
    Image.fromarray(np.linspace(0, most, 64 * 64).reshape(64, 64).astype(np.uint16)).save(tmp_path / "a.png")
    found = np.asarray(read_rgb(tmp_path / "a.png"))
    assert found.min() == 0
    assert abs(int(found.max()) - white) <= 1
