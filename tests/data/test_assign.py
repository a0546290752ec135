"""A test fold is drawn by count, class by class, and keeps patients together."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med.data.assign import ENOUGH, Item, assign_folds, scarce_classes


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
