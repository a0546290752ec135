"""Drawing images by class: test folds, and what is held out; patients stay together."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med import data
from fedmr_med.config import TaskConfig
from fedmr_med.data.base import Fold, joined, units
from fedmr_med.data.datasets import DATASETS
from fedmr_med.data.drawing import ENOUGH, Item, assign_folds, scarce_classes, set_aside
from fedmr_med.jobs.benchmark import benchmark_sites
from fedmr_med.lab.datasets.benchmark import load_test
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.archives import write_mini


def images(label: str, count: int, each: int = 1, start: int = 0) -> list[Item]:
    """Return images of a class, so many of each patient."""
    return [Item(f"{label}-{i}", label, f"{label}{start + i // each}") for i in range(count)]


def test_images(items: list[Item], folds: list[str]) -> Counter[str]:
    return Counter(item.label for item, fold in zip(items, folds, strict=True) if fold == "test")


test_images.__test__ = False  # type: ignore[attr-defined]


def test_a_rare_class_gets_as_many_test_images_as_a_score_needs() -> None:
    items = [*images("NV", 200), *images("MEL", 30), *images("DF", 22), *images("VASC", 21)]
    found = test_images(items, assign_folds(items, 0.2, seed=1))
    assert found == {"NV": 40, "MEL": ENOUGH, "DF": ENOUGH, "VASC": 4}


@pytest.mark.parametrize("seed", range(5))
def test_it_counts_images_and_not_patients(seed: int) -> None:
    """One patient of the rare class has 20 pictures: drawn by patients, a fifth of them would be any number."""
    items = [*images("NV", 300, each=3), *images("MEL", 20, each=20), *images("MEL", 60, each=2, start=50)]
    found = test_images(items, assign_folds(items, 0.2, seed))
    assert abs(found["NV"] - 60) <= 2
    assert 12 <= found["MEL"] <= 20


def test_a_known_fold_is_never_drawn_again_and_its_patient_follows() -> None:
    items = [*images("NV", 60, each=2)]
    items[0] = Item("NV-0", "NV", "NV0", "test")  # the fold of the patient's other picture is not known
    items[10] = Item("NV-10", "NV", "NV5", "train")
    for seed in range(5):
        folds = assign_folds(items, 0.2, seed)
        assert (folds[0], folds[1], folds[10], folds[11]) == ("test", "test", "train", "train")


def test_classes_of_which_nothing_would_leave_are_named() -> None:
    items = [*images("NV", 100), *images("DF", 12)]
    warnings = scarce_classes(items, assign_folds(items, 0.2, seed=0))
    assert len(warnings) == 2 and all(line.startswith("DF: ") for line in warnings)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 12)), min_size=1, max_size=60),
    st.sampled_from((0.0, 0.1, 0.5, 1.0)),
    st.integers(0, 3),
)
def test_groups_stay_whole_and_classes_of_two_groups_are_in_both_folds(
    rows: list[tuple[str, int]], split: float, seed: int
) -> None:
    items = [Item(str(i), label, f"p{patient}" if patient else "") for i, (label, patient) in enumerate(rows)]
    folds = assign_folds(items, split, seed)
    assert folds == assign_folds(items, split, seed)
    by_group: dict[str, set[str]] = {}
    for item, fold in zip(items, folds, strict=True):
        by_group.setdefault(item.group or item.image, set()).add(fold)
    assert all(len(found) == 1 for found in by_group.values())
    if 0 < split < 1:
        for label in {item.label for item in items}:
            groups = {item.group or item.image for item in items if item.label == label}
            if len(groups) > 1:
                assert "train" in {f for i, f in zip(items, folds, strict=True) if i.label == label}
    if split in (0, 1):
        assert set(folds) == {"test" if split else "train"}


def fold_of(*counts: int) -> Fold:
    """Return a fold whose items are their own numbers."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return Fold(np.arange(len(labels), dtype=np.uint8), labels)


def test_the_share_of_each_class_is_held_out_and_never_all_of_one():
    fold = fold_of(20, 10, 1, 2)
    kept, held = set_aside(fold, 0.5, seed=3)
    assert np.bincount(held.labels, minlength=4).tolist() == [10, 5, 0, 1]
    assert sorted([*kept.rows, *held.rows]) == list(range(33))
    again, other = set_aside(fold, 0.5, seed=3)[1], set_aside(fold, 0.5, seed=4)[1]
    assert np.array_equal(held.rows, again.rows)
    assert not np.array_equal(held.rows, other.rows)


def test_joined_folds_give_the_items_of_each_in_turn():
    fold = joined([fold_of(2, 1), fold_of(0), fold_of(2)])
    assert [int(fold[i]) for i in range(len(fold))] == [0, 1, 2, 0, 1]
    assert fold.labels.tolist() == [0, 0, 1, 0, 0]


def test_the_held_out_data_of_all_clients_is_what_the_server_scores_on(tmp_path: Path):
    write_mini("fmnist", tmp_path, per_class=20)
    info = DATASETS.get("fmnist")
    task = TaskConfig(
        dataset="fmnist", class_names=info.class_names, image_size=28, channels=1, transform="none", split="P5C2"
    )
    sites = benchmark_sites(5, root=tmp_path, holds_test=False)
    sites = {name: site.model_copy(update={"held_out": 0.2}) for name, site in sites.items()}
    trained = [data.load(site, task, seed=0) for site in sites.values()]
    assert [len(part.train) for part in trained] == [32] * 5
    assert [len(part.test) for part in trained] == [0] * 5
    scored_on = load_test(sites["client-1"].data, task, seed=0, held_out=0.2)
    assert np.bincount(scored_on.labels).tolist() == [4] * 10
    kept = {part.train[i].tobytes() for part in trained for i in range(len(part.train))}
    held = {scored_on[i].tobytes() for i in range(len(scored_on))}
    assert len(kept) + len(held) == 200
    assert not kept & held


def test_a_site_with_test_data_of_its_own_scores_on_what_it_holds_out():
    task = TaskConfig(
        dataset="isic2019", class_names=DATASETS.get("isic2019").class_names, image_size=24, transform="isic"
    )
    plain = data.load(SiteConfig(data=DemoSource(source="demo", center=3)), task, seed=0)
    held = data.load(SiteConfig(data=DemoSource(source="demo", center=3), held_out=0.25), task, seed=0)
    assert len(held.train) + len(held.test) == len(plain.train)
    assert 0 < len(held.test) < len(held.train)


def test_patients_are_held_out_whole():
    """Forty patients of five images; one of them has images of two classes."""
    labels = np.repeat(np.arange(2), 100)
    groups = tuple(f"p{i // 5}" for i in range(200))
    fold = Fold(np.arange(200), labels, (*groups[:195], *["p0"] * 5))
    for seed in range(5):
        kept, held = set_aside(fold, 0.2, seed)
        assert not {*kept.groups} & {*held.groups}
        assert all(abs(count - 20) <= 5 for count in np.bincount(held.labels))
    alone = Fold(np.arange(6), np.array([0] * 3 + [1] * 3), ("a", "a", "a", "b", "", ""))
    kept, held = set_aside(alone, 0.5, 0)
    assert 0 not in held.labels, "all of a class is one patient's"
    assert held.labels.tolist() == [1, 1]


def test_whatever_is_made_of_a_fold_knows_its_patients():
    fold = Fold(np.arange(4), np.array([0, 1, 0, 1]), ("a", "a", "", "b"))
    nobody = Fold(np.arange(2), np.array([0, 1]))
    assert fold.subset(np.array([3, 2, 0])).groups == ("b", "", "a")
    assert nobody.subset(np.array([1])).groups is None
    assert joined([fold, nobody]).groups == ("a", "a", "", "b", "", "")
    assert joined([nobody, nobody]).groups is None
    assert units(joined([fold, nobody])).tolist() == [0, 0, 1, 2, 3, 4]
    assert units(nobody).tolist() == [0, 1]
