"""Images are decoded once, survive damage of the cache, and the cache stays within its limit."""

import multiprocessing
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmr_med.data import cache
from fedmr_med.data.cache import DecodedImages, default_folder, open_images
from fedmr_med.data.images import decode
from fedmr_med.errors import DataError
from tests.helpers.errors import raises
from tests.helpers.pictures import write_picture

NAMES = ("a.jpg", "sub/b.png", "c.jpg")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed, name in enumerate(NAMES):
        write_picture(tmp_path / "data" / name, size=(60 + 10 * seed, 54), seed=seed)
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were really decoded, in the order of the calls."""
    calls: list[str] = []

    def counting(path: Path, edge: int, *preparation: object) -> np.ndarray:
        calls.append(path.name)
        return decode(path, edge)

    monkeypatch.setattr(cache, "decode", counting)
    return calls


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.images"))


def test_cached_images_equal_decoded_ones(root: Path, folder: Path) -> None:
    images = open_images(root, NAMES, edge=54, folder=folder)
    assert len(images) == 3
    assert images.errors == [None, None, None]
    for index, name in enumerate(NAMES):
        np.testing.assert_array_equal(images[index], decode(root / name, 54))
    assert not images[0].flags.writeable


def test_images_are_decoded_once_and_again_when_something_changes(root: Path, folder: Path, decoded: list[str]) -> None:
    open_images(root, NAMES, edge=54, folder=folder)
    assert sorted(decoded) == ["a.jpg", "b.png", "c.jpg"]
    open_images(root, NAMES, edge=54, folder=folder)
    assert len(decoded) == 3
    open_images(root, NAMES, edge=27, folder=folder)
    assert len(decoded) == 6
    write_picture(root / "a.jpg", seed=99)
    np.testing.assert_array_equal(open_images(root, NAMES, edge=54, folder=folder)[0], decode(root / "a.jpg", 54))
    assert len(decoded) == 9
    open_images(root, NAMES[:2], edge=54, folder=folder)
    assert len(decoded) == 11


def test_a_moved_folder_keeps_its_entry(root: Path, folder: Path, decoded: list[str]) -> None:
    open_images(root, NAMES, edge=54, folder=folder)
    moved = root.rename(root.parent / "elsewhere")
    open_images(moved, NAMES, edge=54, folder=folder)
    assert len(decoded) == 3


def test_unreadable_images_are_remembered(root: Path, folder: Path, decoded: list[str]) -> None:
    (root / "c.jpg").write_bytes(b"")
    names = (*NAMES, "missing.jpg")
    for _ in range(2):
        images = open_images(root, names, edge=54, folder=folder)
        assert images.errors == [None, None, "the file is empty", "No such file or directory"]
        assert images[2].shape == (0, 0, 3)
        np.testing.assert_array_equal(images[1], decode(root / "sub/b.png", 54))
    assert len(decoded) == 4
    write_picture(root / "missing.jpg")
    assert open_images(root, names, edge=54, folder=folder).errors[3] is None


def test_nothing_readable_at_all(root: Path, folder: Path) -> None:
    for _ in range(2):
        images = open_images(root, ["x", "y"], edge=54, folder=folder)
        assert all(images.errors)
        assert images[1].shape == (0, 0, 3)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_digit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"[54, 60]", b"[60, 54]"))


@pytest.mark.parametrize(
    "damage", [cut, flip_a_digit, Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x")]
)
def test_a_damaged_entry_is_made_again(
    root: Path, folder: Path, decoded: list[str], damage: Callable[[Path], object]
) -> None:
    open_images(root, NAMES, edge=54, folder=folder)
    damage(entries(folder)[0])
    images = open_images(root, NAMES, edge=54, folder=folder)
    assert len(decoded) == 6
    np.testing.assert_array_equal(images[0], decode(root / "a.jpg", 54))
    open_images(root, NAMES, edge=54, folder=folder)
    assert len(decoded) == 6


def test_what_a_killed_process_left_is_removed(root: Path, folder: Path) -> None:
    open_images(root, NAMES, edge=54, folder=folder)
    (entry,) = entries(folder)
    entry.unlink()
    (folder / f".{entry.name}.killed").write_bytes(b"half")
    open_images(root, NAMES, edge=54, folder=folder)
    assert {path for path in folder.iterdir() if path.suffix != ".lock"} == {entry}


def test_the_least_recently_used_entry_goes_first(root: Path, folder: Path) -> None:
    def ask(edge: int, limit: int) -> None:
        open_images(root, NAMES, edge=edge, folder=folder, limit=limit)

    size = 3 * 54 * (60 + 70 + 80) + 1000  # pixels and index
    ask(54, 10 * size)
    (first,) = entries(folder)
    ask(53, 10 * size)
    (second,) = set(entries(folder)) - {first}
    os.utime(first, ns=(2, 2))
    os.utime(second, ns=(1, 1))
    ask(54, 10 * size)
    assert set(entries(folder)) == {first, second}
    ask(52, 2 * size)
    kept = set(entries(folder))
    assert first in kept
    assert second not in kept
    assert len(kept) == 2


def test_an_entry_in_use_stays(root: Path, folder: Path) -> None:
    images = open_images(root, NAMES, edge=54, folder=folder)
    open_images(root, NAMES, edge=27, folder=folder, limit=1)
    assert len(entries(folder)) == 2
    pickle.loads(pickle.dumps(images))
    del images
    open_images(root, NAMES, edge=27, folder=folder, limit=1)
    assert len(entries(folder)) == 1


def test_a_pickled_cache_maps_the_same_pixels(root: Path, folder: Path) -> None:
    images = open_images(root, NAMES, edge=54, folder=folder)
    content = pickle.dumps(images)
    assert len(content) < 1000
    np.testing.assert_array_equal(pickle.loads(content)[2], images[2])


def _open_elsewhere(root: Path, names: Sequence[str], folder: Path) -> tuple[bytes, int]:
    images = open_images(root, names, edge=54, folder=folder)
    return b"".join(images[i].tobytes() for i in range(len(images))), entries(folder)[0].stat().st_ino


@pytest.mark.slow
def test_processes_that_start_together_share_one_entry(root: Path, folder: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        results = pool.starmap(_open_elsewhere, [(root, NAMES, folder)] * 8, chunksize=1)
    assert len(set(results)) == 1
    assert len(entries(folder)) == 1


def test_a_failure_while_writing_leaves_nothing(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with raises("file.not-writable", "cache", kind=DataError):
            open_images(root, NAMES, edge=54, folder=folder)
    assert entries(folder) == []
    assert open_images(root, NAMES, edge=54, folder=folder).errors == [None] * 3


def test_a_cache_that_cannot_be_made_is_an_error(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises("file.not-writable", "cache", kind=DataError):
        open_images(root, NAMES, edge=54, folder=tmp_path / "file")


def test_only_the_owner_can_look_into_the_cache(root: Path, folder: Path) -> None:
    open_images(root, NAMES, edge=54, folder=folder)
    assert folder.stat().st_mode & 0o077 == 0


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDMR_MED_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("FEDMR_MED_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "fedmr_med"


def test_more_images_than_are_decoded_at_once(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_AT_ONCE", 4)
    names = [f"{i}.png" for i in range(11)]
    for i, name in enumerate(names):
        Image.new("RGB", (16, 16), (i, 0, 0)).save(tmp_path / name)
    images: DecodedImages = open_images(tmp_path, names, edge=16, folder=folder)
    assert [int(images[i][0, 0, 0]) for i in range(11)] == list(range(11))
