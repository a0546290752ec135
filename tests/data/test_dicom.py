"""DICOM pictures come out as a screen would show them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom import dcmread
from pydicom.uid import DeflatedExplicitVRLittleEndian

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


LIMIT = 1.5e9  # bytes that decoding one file may take


def peak(code: str) -> int:
    """Return the bytes by which a piece of Python raises the peak memory of its process, imports left out."""
    program = f"""
from pathlib import Path
import numpy, pydicom, pydicom.pixels, PIL.Image
from fedmr_med.data.images import UnreadableImageError
from fedmr_med.data.images import decode
PIL.Image.init()
def peak():  # the usage that getrusage tells begins with that of the parent
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
before = peak()
{code}
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def refusing(path: Path) -> str:
    return f"""
try:
    decode(Path({str(path)!r}), 32)
except UnreadableImageError as e:
    assert str(e)
else:
    raise SystemExit("it was decoded")
"""


@pytest.mark.slow
def test_a_small_file_cannot_take_gigabytes(tmp_path: Path) -> None:
    edge = 12_000  # 144 million pixels of 16 bits in 283 kB
    write_dicom(tmp_path / "a.dcm", np.zeros((4, 4), np.uint16))
    dataset = dcmread(tmp_path / "a.dcm")
    dataset.Rows = dataset.Columns = edge
    dataset.PixelData = bytes(2 * edge * edge)
    dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    dataset.save_as(tmp_path / "deflated.dcm")
    assert (tmp_path / "deflated.dcm").stat().st_size < 300_000
    assert peak(refusing(tmp_path / "deflated.dcm")) < 50e6


@pytest.mark.slow
@pytest.mark.parametrize("edges", [(65_535, 65_535), (7_072, 7_072)])
def test_the_size_is_looked_at_before_the_pixels(edges: tuple[int, int], tmp_path: Path) -> None:
    rows, columns = edges
    write_dicom(tmp_path / "a.dcm", np.zeros((4, 4), np.uint16), Rows=rows, Columns=columns)
    with pytest.raises(UnreadableImageError, match="million pixels are too many"):
        decode(tmp_path / "a.dcm", 32)
    Image.new("L", edges if rows < 10_000 else (13_000, 13_000)).save(tmp_path / "a.png")
    assert peak(refusing(tmp_path / "a.png")) < 50e6


@pytest.mark.slow
def test_the_largest_picture_fits_into_the_memory_of_a_desktop(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", np.zeros((7_000, 7_000), np.uint16), RescaleSlope=1, RescaleIntercept=-1024)
    assert peak(f"decode(Path({str(tmp_path / 'a.dcm')!r}), 32)") < LIMIT


def test_postscript_is_no_picture_whatever_its_name(tmp_path: Path) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    with pytest.raises(UnreadableImageError, match="not an image"):
        decode(tmp_path / "a.png", 32)
