"""Unreadable images are counted, up to the site's limit."""

from pathlib import Path

import numpy as np
import pytest

from fedmr_med.data.folds import Row, shared_groups, site_data
from fedmr_med.errors import DataError
from tests.helpers.errors import raises
from tests.helpers.pictures import isic_task, manifest_site, write_picture


def rows_with_pictures(root: Path, count: int = 20) -> list[Row]:
    rows = [Row(f"{i}.jpg", i % 8, "test" if i % 5 == 4 else "train") for i in range(count)]
    for seed, row in enumerate(rows):
        write_picture(root / row.image, seed=seed)
    return rows


def test_folds_keep_the_order_of_the_rows(tmp_path: Path) -> None:
    root = tmp_path / "data"
    rows = rows_with_pictures(root)
    data = site_data(root, rows, isic_task(), manifest_site(root), prepared=True)
    assert data.train.labels.tolist() == [row.label for row in rows if row.fold == "train"]
    assert data.test.labels.tolist() == [row.label for row in rows if row.fold == "test"]
    assert (len(data.train), len(data.test), data.skipped, data.is_demo) == (16, 4, (), False)
    assert data.train.labels.dtype == np.int64
    assert data.test[0].shape == (54, 72, 3)


def test_unreadable_images_are_left_out_up_to_the_limit(tmp_path: Path) -> None:
    root = tmp_path / "data"
    rows = rows_with_pictures(root)
    (root / "0.jpg").write_bytes(b"")
    (root / "4.jpg").write_bytes(b"no image")
    data = site_data(root, rows, isic_task(), manifest_site(root, max_bad_fraction=0.1), prepared=True)
    assert data.skipped == (f"{root / '0.jpg'}: the file is empty", f"{root / '4.jpg'}: not an image")
    assert (len(data.train), len(data.test)) == (15, 3)
    assert data.train.labels[0] == rows[1].label
    with pytest.raises(DataError, match=r"2 of 20 images.*max_bad_fraction: 0\.09 in site\.yaml.*0\.jpg: the file is"):
        site_data(root, rows, isic_task(), manifest_site(root, max_bad_fraction=0.09), prepared=True)


def test_a_long_list_of_unreadable_images_is_cut(tmp_path: Path) -> None:
    root = tmp_path / "data"
    rows = rows_with_pictures(root)
    for i in range(13):
        (root / f"{i}.jpg").unlink()
    with pytest.raises(DataError) as error:
        site_data(root, rows, isic_task(), manifest_site(root), prepared=True)
    assert str(error.value).count("No such file") == 10
    assert "13 of 20 images" in str(error.value)
    assert "and 3 more" in str(error.value)


def test_a_site_without_training_images_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_picture(root / "a.jpg")
    with raises("data.empty"):
        site_data(root, [Row("a.jpg", 0, "test")], isic_task(), manifest_site(root), prepared=True)


def test_groups_in_both_folds() -> None:
    rows = [Row("a", 0, "train", "p1"), Row("b", 0, "test", "p1"), Row("c", 0, "train", "p2"), Row("d", 0, "test", "")]
    assert shared_groups(rows) == {"p1"}
    assert shared_groups([Row("a", 0, "train"), Row("b", 0, "test")]) == set()
