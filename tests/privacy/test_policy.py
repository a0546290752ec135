"""A job can make a site's policy stricter, never looser; the reference is what each setting lets out."""

from itertools import product

import numpy as np
import pytest

from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.privacy.policy import Sharing, SitePolicy
from fedmr_med.schema import validated
from tests.helpers.errors import raises

CLASSES = ("melanoma", "nevus", "keratosis")
PROTOTYPES = (False, True, (), ("melanoma",), ("nevus", "melanoma"))
METRICS = ("none", "scalar", "per_class")
APPROVALS = ("each", "new_settings", "always")


def test_a_switch_is_on_only_where_both_turn_it_on() -> None:
    for own, asked in product((False, True), repeat=2):
        both = SitePolicy(allow_submit_model=own).restricted_by(Sharing(allow_submit_model=asked))
        assert both.allow_submit_model is (own and asked)


@pytest.mark.parametrize(("own", "asked"), list(product(PROTOTYPES, repeat=2)))
def test_a_class_leaves_only_where_both_let_it_out(own: bool | tuple[str, ...], asked: bool | tuple[str, ...]) -> None:
    both = SitePolicy(share_prototypes=own).restricted_by(Sharing(share_prototypes=asked))
    allowed = [SitePolicy(share_prototypes=choice).chosen_classes(CLASSES) for choice in (own, asked)]
    assert both.chosen_classes(CLASSES).tolist() == np.logical_and(*allowed).tolist()


def test_the_larger_count_and_the_lower_level_hold() -> None:
    for own, asked in product((5, 11, 30), repeat=2):
        assert SitePolicy(min_class_count=own).restricted_by(Sharing(min_class_count=asked)).min_class_count == max(
            own, asked
        )
    for name, levels in {"share_metrics": METRICS, "approve": APPROVALS}.items():
        for (i, own), (j, asked) in product(enumerate(levels), repeat=2):
            both = SitePolicy(**{name: own}).restricted_by(Sharing(**{name: asked}))
            assert getattr(both, name) == levels[min(i, j)]


def test_the_site_alone_says_how_long_its_people_may_take() -> None:
    for own, asked in ((5, 60), (60, 5)):
        both = SitePolicy(approval_minutes=own).restricted_by(Sharing(approval_minutes=asked))
        assert both.approval_minutes == own


@pytest.mark.parametrize(
    ("section", "key", "edge", "beyond", "code"),
    [
        (SitePolicy, "approval_minutes", 7 * 24 * 60, 7 * 24 * 60 + 1, "config.less-than-equal"),
        (TrainingFloors, "max_batch_size", 2, 1, "config.greater-than-equal"),
    ],
)
def test_a_setting_is_taken_up_to_its_bound(
    section: type[SitePolicy | TrainingFloors], key: str, edge: int, beyond: int, code: str
) -> None:
    """A person has a week, and a batch two images."""
    least = {"min_batch_size": 2} if section is TrainingFloors else {}
    validated(section, least | {key: edge}, "the test")
    with raises(code, key):
        validated(section, least | {key: beyond}, "the test")
