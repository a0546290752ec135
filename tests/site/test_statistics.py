"""What is held out of a class to choose the shrinkage, and whose statistics leave."""

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med.data.base import Fold, units
from fedmr_med.privacy.accountant import PrivacyBudget
from fedmr_med.site.statistics import hold_out
from tests.helpers.small import CLOSED, OPEN, lenient, small_hospital, small_job


@settings(deadline=None, max_examples=100)
@given(
    counts=st.lists(st.integers(0, 200), min_size=2, max_size=5),
    smallest=st.integers(1, 30),
    fraction=st.floats(0.01, 0.5),
)
def test_no_part_of_a_class_is_smaller_than_may_leave(counts: list[int], smallest: int, fraction: float) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    classes = np.array([count >= smallest for count in counts])
    held = hold_out(Fold(labels, labels), classes, fraction=fraction, smallest=smallest, site="site")
    for label, count in enumerate(counts):
        aside = int(held[labels == label].sum())
        assert aside == 0 or (classes[label] and aside >= smallest and count - aside >= smallest)
    again = hold_out(Fold(labels, labels), classes, fraction=fraction, smallest=smallest, site="site")
    assert np.array_equal(held, again)


def test_a_large_class_gives_its_share() -> None:
    labels = np.zeros(1000, dtype=np.int64)
    held = hold_out(Fold(labels, labels), np.array([True]), fraction=0.15, smallest=11, site="site")
    assert held.sum() == 150


def test_a_patient_is_in_one_part() -> None:
    labels = np.repeat(np.arange(2), 200)
    fold = Fold(labels, labels, tuple(f"p{i // 5}" for i in range(400)))
    held = hold_out(fold, np.array([True, True]), fraction=0.15, smallest=11, site="site")
    assert not set(units(fold)[held]) & set(units(fold)[~held])
    assert all(abs(count - 30) <= 4 for count in np.bincount(labels[held]))
    large = Fold(labels, labels, tuple(f"p{i // 100}" for i in range(400)))
    held = hold_out(large, np.array([True, True]), fraction=0.15, smallest=11, site="site")
    assert np.bincount(labels[held], minlength=2).tolist() == [100, 100], "nobody's images are torn apart"


def test_a_site_says_whose_statistics_leave_for_the_head(tmp_path: Path) -> None:
    budget = lenient(share_prototypes=True, privacy=PrivacyBudget(epsilon=4))
    policies = {"open": OPEN, "closed": CLOSED, "a job without the noise that it asks for": budget}
    for exchange, name in (("last", "open"), ("none", "open"), *(("last", other) for other in list(policies)[1:])):
        job = small_job("fedavg", head={"exchange": exchange})
        site = small_hospital("rosendahl", job, tmp_path / f"{exchange}-{name}", policies[name])
        assert not site.releases.sums.prototype_classes().any()
        assert site.releases.sums.statistics_classes().any() == ((exchange, name) == ("last", "open"))
