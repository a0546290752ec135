"""Training data that is held out and scored on in place of the test set."""

from pathlib import Path

import numpy as np

from fedmr_med import data
from fedmr_med.config import TaskConfig
from fedmr_med.data.base import ArrayFold, JoinedFold, SubsetFold, units
from fedmr_med.data.datasets import DATASETS
from fedmr_med.data.held_out import set_aside
from fedmr_med.jobs.benchmark import benchmark_sites
from fedmr_med.lab.datasets.benchmark import load_test
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.archives import write_mini


def fold_of(*counts: int) -> ArrayFold:
    """Return a fold whose items are their own numbers."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return ArrayFold(np.arange(len(labels), dtype=np.uint8), labels)


def test_the_share_of_each_class_is_held_out_and_never_all_of_one():
    fold = fold_of(20, 10, 1, 2)
    kept, held = set_aside(fold, 0.5, seed=3)
    assert np.bincount(held.labels, minlength=4).tolist() == [10, 5, 0, 1]
    assert sorted([*kept.indices, *held.indices]) == list(range(33))
    again, other = set_aside(fold, 0.5, seed=3)[1], set_aside(fold, 0.5, seed=4)[1]
    assert np.array_equal(held.indices, again.indices)
    assert not np.array_equal(held.indices, other.indices)


def test_joined_folds_give_the_items_of_each_in_turn():
    joined = JoinedFold([fold_of(2, 1), fold_of(0), fold_of(2)])
    assert [int(joined[i]) for i in range(len(joined))] == [0, 1, 2, 0, 1]
    assert joined.labels.tolist() == [0, 0, 1, 0, 0]


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
    fold = ArrayFold(np.arange(200), labels, (*groups[:195], *["p0"] * 5))
    for seed in range(5):
        kept, held = set_aside(fold, 0.2, seed)
        assert not {*kept.groups} & {*held.groups}
        assert all(abs(count - 20) <= 5 for count in np.bincount(held.labels))
    alone = ArrayFold(np.arange(6), np.array([0] * 3 + [1] * 3), ("a", "a", "a", "b", "", ""))
    kept, held = set_aside(alone, 0.5, 0)
    assert 0 not in held.labels, "all of a class is one patient's"
    assert held.labels.tolist() == [1, 1]


def test_whatever_is_made_of_a_fold_knows_its_patients():
    fold = ArrayFold(np.arange(4), np.array([0, 1, 0, 1]), ("a", "a", "", "b"))
    nobody = ArrayFold(np.arange(2), np.array([0, 1]))
    assert SubsetFold(fold, np.array([3, 2, 0])).groups == ("b", "", "a")
    assert SubsetFold(nobody, np.array([1])).groups is None
    assert JoinedFold([fold, nobody]).groups == ("a", "a", "", "b", "", "")
    assert JoinedFold([nobody, nobody]).groups is None
    assert units(JoinedFold([fold, nobody])).tolist() == [0, 0, 1, 2, 3, 4]
    assert units(nobody).tolist() == [0, 1]
