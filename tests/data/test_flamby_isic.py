"""FLamby's prepared folder: found, cut into centres, and every mistake named."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmr_med import data
from fedmr_med.data.base import class_counts
from fedmr_med.data.flamby_isic import (
    CLASS_NAMES,
    HOSPITALS,
    LESIONS_FILE,
    PREPARED_FOLDER,
    RAW_FOLDER,
    SPLIT_FILE,
    TEST_COUNTS,
    TRAIN_COUNTS,
    read_lesions,
    read_split,
)
from fedmr_med.errors import DataError
from fedmr_med.sites import FlambyIsicSource, SiteConfig
from tests.helpers.errors import raises
from tests.helpers.pictures import flamby_site, isic_task, write_flamby_folder, write_split


def load(site: SiteConfig, image_size: int = 48) -> data.SiteData:
    return data.load(site, isic_task(image_size), seed=0)


@pytest.mark.parametrize("center", range(6))
def test_a_centre_has_its_rows_in_file_order(tmp_path: Path, center: int) -> None:
    root = tmp_path / "isic"
    rows = write_flamby_folder(root)
    site = load(flamby_site(root, center))
    for fold, images in (("train", site.train), ("test", site.test)):
        assert images.labels.tolist() == [target for _, target, c, f in rows if (c, f) == (center, fold)]
    first = next(image for image, _, c, f in rows if (c, f) == (center, "test"))
    with Image.open(root / PREPARED_FOLDER / f"{first}.jpg") as reference:
        np.testing.assert_array_equal(site.test[0], np.asarray(reference))


def test_images_of_flambys_size_keep_their_pixels(tmp_path: Path) -> None:
    root = tmp_path / "isic"
    write_split(root / SPLIT_FILE, [("a", 0, 0, "train")])
    (root / PREPARED_FOLDER).mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (224, 298, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(root / PREPARED_FOLDER / "a.jpg")
    with Image.open(root / PREPARED_FOLDER / "a.jpg") as reference:
        np.testing.assert_array_equal(load(flamby_site(root, 0), 200).train[0], np.asarray(reference))


def test_leaked_lesions_can_be_left_out_of_the_test_fold(tmp_path: Path) -> None:
    root = tmp_path / "isic"
    rows = write_flamby_folder(root)
    whole, site = load(flamby_site(root, 2)), flamby_site(root, 2)
    clean = site.model_copy(update={"data": site.data.model_copy(update={"without_leaked": True})})
    with raises("file.missing", "data.without_leaked", kind=DataError):
        load(clean)
    tested = [image for image, _, c, fold in rows if (c, fold) == (2, "test")]
    # The lesion of the first test image is in the train fold of another centre.
    elsewhere = next(image for image, _, c, fold in rows if (c, fold) == (1, "train"))
    lesions = {tested[0]: "L1", elsewhere: "L1", **({tested[1]: "L2"} if len(tested) > 1 else {})}
    table = "".join(f"{lesion},{image}\n" for image, lesion in lesions.items())
    (root / LESIONS_FILE).write_text("lesion_id,image_id\n" + table)
    left = load(clean)
    assert left.test.labels.tolist() == whole.test.labels.tolist()[1:]
    assert left.train.labels.tolist() == whole.train.labels.tolist()


def test_a_lesion_is_scored_in_one_part_of_a_cross_validation(tmp_path: Path) -> None:
    root, parts = tmp_path / "isic", 3
    rows = write_flamby_folder(root)
    site = flamby_site(root, 2)

    def part(number: int) -> SiteConfig:
        return site.model_copy(update={"data": site.data.model_copy(update={"test_part": number, "parts": parts})})

    with raises("file.missing", "data.test_part", kind=DataError):
        load(part(0))
    names = [image for image, _, center, _ in rows if center == 2]
    lesions = {image: f"L{position // 2}" for position, image in enumerate(names)}
    (root / LESIONS_FILE).write_text("lesion_id,image_id\n" + "".join(f"{lesions[i]},{i}\n" for i in names))
    folds = [load(part(number)) for number in range(parts)]
    groups = [(set(fold.train.groups), set(fold.test.groups)) for fold in folds]
    for trained, scored in groups:
        assert not trained & scored
        assert trained | scored == set(lesions.values())
    assert sum(len(scored) for _, scored in groups) == len(set(lesions.values())), "every lesion is scored once"
    assert sum(len(scored) > 0 for _, scored in groups) > 1
    counts = sum(class_counts(fold.test, len(CLASS_NAMES)) for fold in folds)
    assert counts.tolist() == [sum(t == c and center == 2 for _, t, center, _ in rows) for c in range(len(CLASS_NAMES))]


def test_the_split_is_found_in_the_folder_by_path_or_in_a_checkout(tmp_path: Path) -> None:
    root = tmp_path / "isic"
    write_flamby_folder(root)
    elsewhere = tmp_path / "split.csv"
    shutil.move(root / SPLIT_FILE, elsewhere)
    with pytest.raises(DataError, match=r"train_test_split was not found .*data\.split_file or data\.flamby"):
        load(flamby_site(root, 1))
    assert len(load(flamby_site(root, 1, split_file=elsewhere)).train) == 6
    checkout = tmp_path / "FLamby"
    in_checkout = checkout / "flamby/datasets/fed_isic2019/dataset_creation_scripts" / SPLIT_FILE
    in_checkout.parent.mkdir(parents=True)
    shutil.move(elsewhere, in_checkout)
    assert len(load(flamby_site(root, 1, flamby=checkout)).train) == 6
    with raises("file.missing", "data.split_file", kind=DataError):
        load(flamby_site(root, 1, split_file=elsewhere, flamby=checkout))


def test_the_folder_comes_from_the_environment_or_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = SiteConfig(data=FlambyIsicSource(source="flamby_isic", center=2), cache=tmp_path / "cache")
    monkeypatch.delenv("FEDMR_MED_ISIC", raising=False)
    with pytest.raises(DataError, match=r"data\.root in site\.yaml, or FEDMR_MED_ISIC"):
        load(site)
    write_flamby_folder(tmp_path / "isic")
    monkeypatch.setenv("FEDMR_MED_ISIC", str(tmp_path / "isic"))
    assert len(load(site).train) == 6


def test_a_missing_folder_names_key_and_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"preprocessed does not exist.*data\.root.*prepare-isic"):
        load(flamby_site(tmp_path, 0))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("b", 8, 0, "train"), "row 3: target is '8', not a number from 0 to 7"),
        (("b", "x", 0, "train"), "row 3: target is 'x'"),
        (("b", -1, 0, "train"), "row 3: target is '-1'"),
        (("b", 0, 6, "train"), "row 3: center is '6', not a number from 0 to 5"),
        (("b", 0, 0, "val"), "row 3: fold is 'val'"),
    ],
)
def test_values_out_of_range_are_named(tmp_path: Path, row: tuple[str, object, object, str], message: str) -> None:
    root = tmp_path / "isic"
    (root / PREPARED_FOLDER).mkdir(parents=True)
    write_split(root / SPLIT_FILE, [("a", 0, 0, "train"), row])
    with pytest.raises(DataError, match=rf"{SPLIT_FILE}, {message}"):
        load(flamby_site(root, 0))
    assert not (tmp_path / "cache").exists()


def test_other_classes_are_refused(tmp_path: Path) -> None:
    task = isic_task().model_copy(update={"class_names": ("a", "b")})
    with raises("data.class-names", "task.class_names"):
        data.load(flamby_site(tmp_path, 0), task, seed=0)


def test_the_real_split_has_the_known_counts(shared_data: Path) -> None:
    centers = read_split(shared_data / "fed_isic2019" / SPLIT_FILE)
    assert len(centers) == len(HOSPITALS)
    for center, rows in enumerate(centers):
        for fold, expected in (("train", TRAIN_COUNTS), ("test", TEST_COUNTS)):
            labels = [row.label for row in rows if row.fold == fold]
            assert np.bincount(labels, minlength=len(CLASS_NAMES)).tolist() == list(expected[center])


def test_the_known_counts_add_up_to_flambys_total() -> None:
    assert np.sum(TRAIN_COUNTS) == 18_597
    assert np.sum(TEST_COUNTS) == 4_650


def test_the_real_metadata_names_the_lesion_of_every_ham_image(shared_data: Path) -> None:
    folder = shared_data / "fed_isic2019"
    centers = read_split(folder / SPLIT_FILE, read_lesions(folder / LESIONS_FILE))
    for center in (1, 2, 3, 5):
        assert all(row.group for row in centers[center])
    ham = [row for center in (1, 2, 3, 5) for row in centers[center]]
    train = {row.group for row in ham if row.fold == "train"}
    test = [row for row in ham if row.fold == "test"]
    assert (sum(row.group in train for row in test), len(test)) == (760, 2003)


@pytest.mark.slow
def test_all_real_images_are_read_with_the_known_counts(shared_data: Path, tmp_path: Path) -> None:
    source, root = shared_data / "fed_isic2019", tmp_path / "isic"
    root.mkdir()
    (root / SPLIT_FILE).symlink_to(source / SPLIT_FILE)
    (root / PREPARED_FOLDER).symlink_to(source / RAW_FOLDER)
    for center in range(1, 6):
        site = load(flamby_site(root, center))
        assert class_counts(site.train, 8).tolist() == list(TRAIN_COUNTS[center])
        assert class_counts(site.test, 8).tolist() == list(TEST_COUNTS[center])
        assert site.skipped == ()
        assert min(site.train[0].shape[:2]) == 54
