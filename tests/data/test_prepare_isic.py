"""The preparation equals FLamby's but for the wrap, resumes where it stopped, and leaves the source alone."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmr_med import data, files
from fedmr_med.data.base import class_counts
from fedmr_med.data.flamby_isic import (
    LESIONS_FILE,
    PREPARED_FOLDER,
    RAW_FOLDER,
    SPLIT_FILE,
    TEST_COUNTS,
    TRAIN_COUNTS,
    read_split,
)
from fedmr_med.data.preparation import RECORD, shades_of_grey
from fedmr_med.data.prepare_isic import prepare_isic
from fedmr_med.errors import DataError
from tests.helpers.errors import raises
from tests.helpers.pictures import flamby_site, isic_task, write_picture


def write_raw(root: Path, count: int = 3) -> None:
    for seed in range(count):
        write_picture(root / RAW_FOLDER / f"ISIC_{seed}.jpg", size=(400, 300), seed=seed)
    (root / SPLIT_FILE).write_text("the split\n")
    (root / LESIONS_FILE).write_text("the lesions\n")


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def reference_constancy(image: np.ndarray) -> np.ndarray:
    """Shades of grey by its definition: divide by the Minkowski 6-norm of each channel, keep the overall length."""
    pixels = image.astype(np.float64)
    norm = (pixels**6).mean(axis=(0, 1)) ** (1 / 6)
    return pixels * np.linalg.norm(norm) / (norm * np.sqrt(3))


@pytest.mark.parametrize("seed", range(5))
def test_colour_constancy_by_its_definition_and_clipped(seed: int) -> None:
    generator = np.random.default_rng(seed)
    image = (generator.integers(0, 256, (40, 50, 3)) * generator.permutation([1, 0.5, 0.4])).astype(np.uint8)
    image[0, :2] = 255  # a white reflection in coloured light
    expected = reference_constancy(image)
    assert expected.max() > 256  # values that FLamby lets wrap round to 0
    result = shades_of_grey(image)
    assert np.abs(result.astype(int) - np.clip(expected, 0, 255).astype(int)).max() <= 1
    assert result[expected >= 256].min() == 255


def test_colour_constancy_makes_grey_light_grey() -> None:
    image = np.full((8, 8, 3), (200, 100, 50), dtype=np.uint8)
    result = shades_of_grey(image)
    assert result.std(axis=2).max() == 0
    np.testing.assert_array_equal(shades_of_grey(np.full((4, 4, 3), 90, dtype=np.uint8)), 90)


@pytest.mark.parametrize("colour", [(0, 0, 0), (120, 0, 0)])
def test_colour_constancy_of_missing_light(colour: tuple[int, int, int]) -> None:
    result = shades_of_grey(np.full((4, 4, 3), colour, dtype=np.uint8))
    assert (result[..., 1:] == 0).all()


def test_images_are_resized_and_corrected_and_the_split_comes_along(tmp_path: Path) -> None:
    source, target = tmp_path / "raw", tmp_path / "prepared"
    write_raw(source)
    before = snapshot(source)
    seen: list[tuple[int, int]] = []
    report = prepare_isic(source, target, progress=lambda done, total: seen.append((done, total)))
    assert (report.folder, report.written, report.kept, report.failed) == (target / PREPARED_FOLDER, 3, 0, ())
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert (target / SPLIT_FILE).read_text() == "the split\n"
    assert (target / LESIONS_FILE).read_text() == "the lesions\n"
    assert snapshot(source) == before
    with Image.open(source / RAW_FOLDER / "ISIC_1.jpg") as raw, Image.open(report.folder / "ISIC_1.jpg") as prepared:
        assert prepared.size == (298, 224)
        resized = np.asarray(raw.resize((298, 224), Image.Resampling.BILINEAR))
        expected = np.clip(reference_constancy(resized), 0, 255)
        assert np.abs(np.asarray(prepared) - expected).mean() < 4  # what JPEG costs


def test_a_second_run_makes_only_what_is_missing_or_changed(tmp_path: Path) -> None:
    source, target = tmp_path / "raw", tmp_path / "prepared"
    write_raw(source)
    prepare_isic(source, target)
    first = snapshot(target)
    assert prepare_isic(source, target).kept == 3
    assert snapshot(target) == first
    (target / PREPARED_FOLDER / "ISIC_0.jpg").unlink()
    write_picture(source / RAW_FOLDER / "ISIC_1.jpg", size=(300, 300), seed=7)
    later = (target / PREPARED_FOLDER / "ISIC_1.jpg").stat().st_mtime_ns + 10**9
    os.utime(source / RAW_FOLDER / "ISIC_1.jpg", ns=(later, later))
    report = prepare_isic(source, target)
    assert (report.written, report.kept) == (2, 1)
    with Image.open(target / PREPARED_FOLDER / "ISIC_1.jpg") as image:
        assert image.size == (224, 224)


def test_unreadable_images_are_reported_and_the_rest_prepared(tmp_path: Path) -> None:
    source, target = tmp_path / "raw", tmp_path / "prepared"
    write_raw(source)
    (source / RAW_FOLDER / "ISIC_1.jpg").write_bytes(b"")
    report = prepare_isic(source, target)
    assert (report.written, report.failed) == (2, (f"{source / RAW_FOLDER / 'ISIC_1.jpg'}: the file is empty",))
    assert sorted(path.name for path in report.folder.iterdir()) == ["ISIC_0.jpg", "ISIC_2.jpg"]


def test_two_ways_of_preparation_are_not_mixed(tmp_path: Path) -> None:
    source, target = tmp_path / "raw", tmp_path / "prepared"
    write_raw(source)
    prepare_isic(source, target, edge=64)
    before = snapshot(target)
    with raises("data.other-settings"):
        prepare_isic(source, target)
    (target / RECORD).unlink()
    with raises("data.foreign"):
        prepare_isic(source, target, edge=64)
    assert snapshot(target) == {name: content for name, content in before.items() if name != RECORD}


def test_a_source_without_images_is_an_error(tmp_path: Path) -> None:
    with raises("data.empty"):
        prepare_isic(tmp_path, tmp_path / "prepared")
    assert not (tmp_path / "prepared").exists()


def test_a_full_disk_leaves_no_half_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "raw", tmp_path / "prepared"
    write_raw(source)
    prepare_isic(source, target)
    (target / PREPARED_FOLDER / "ISIC_2.jpg").unlink()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with raises("file.not-writable", kind=DataError):
            prepare_isic(source, target)
    assert sorted(path.name for path in (target / PREPARED_FOLDER).iterdir()) == ["ISIC_0.jpg", "ISIC_1.jpg"]


@pytest.mark.slow
def test_processes_give_the_same_files(tmp_path: Path) -> None:
    source = tmp_path / "raw"
    write_raw(source, count=40)
    (source / RAW_FOLDER / "ISIC_20.jpg").write_bytes(b"no image")
    alone = prepare_isic(source, tmp_path / "alone")
    together = prepare_isic(source, tmp_path / "together", workers=2)
    assert alone.failed == together.failed
    for path in alone.folder.iterdir():
        assert (together.folder / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_real_images_are_prepared_and_loaded_with_the_known_counts(shared_data: Path, tmp_path: Path) -> None:
    real, source, target = shared_data / "fed_isic2019", tmp_path / "raw", tmp_path / "prepared"
    centers = read_split(real / SPLIT_FILE)
    (source / RAW_FOLDER).mkdir(parents=True)
    (source / SPLIT_FILE).symlink_to(real / SPLIT_FILE)
    chosen = [row.image for row in centers[5]] + [row.image for rows in centers[1:5] for row in rows[:10]]
    for image in chosen:
        (source / RAW_FOLDER / image).symlink_to(real / RAW_FOLDER / image)
    report = prepare_isic(source, target, workers=2)
    assert (report.written, report.failed) == (len(chosen), ())
    for image in chosen[::50]:
        with Image.open(report.folder / image) as prepared:
            assert min(prepared.size) == 224
    site = data.load(flamby_site(target, 5), isic_task(200), seed=0)
    assert class_counts(site.train, 8).tolist() == list(TRAIN_COUNTS[5])
    assert class_counts(site.test, 8).tolist() == list(TEST_COUNTS[5])
    assert site.skipped == ()
