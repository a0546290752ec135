"""Changing the policy in a kit: one file, sealed, comments kept."""

from pathlib import Path

import pytest

from fedmr_med.data.flamby_isic import CLASS_NAMES
from fedmr_med.deploy.kit import site_settings
from fedmr_med.deploy.manifest import verify
from fedmr_med.deploy.site_policy import set_policy
from fedmr_med.errors import PolicyError
from tests.helpers.errors import raises


def test_a_change_is_written_and_sealed_and_keeps_comments(kits: Path) -> None:
    kit = kits / "msk"
    policy = set_policy(kit, {"share_prototypes": False, "allow_submit_model": False}, CLASS_NAMES)
    assert policy == site_settings(kit).policy
    assert policy.share_prototypes is False
    text = (kit / "local" / "site.yaml").read_text()
    assert "# Prototypes of these classes may leave." in text
    assert verify(kit).sealed == ("local/site.yaml",)


def test_per_class(kits: Path) -> None:
    assert set_policy(kits / "msk", {"share_prototypes": ["NV", "MEL"]}, CLASS_NAMES).share_prototypes == ("NV", "MEL")
    assert site_settings(kits / "msk").policy.share_prototypes == ("NV", "MEL")


def test_a_file_in_another_style_is_changed_as_well(kits: Path) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    path.write_text("data: {source: demo, center: 4}\npolicy: {share_prototypes: true, share_metrics: scalar}\n")
    assert set_policy(kits / "msk", {"share_prototypes": False}, None) == site_settings(kits / "msk").policy
    path.write_text("data: {source: demo, center: 4}\n")
    assert set_policy(kits / "msk", {"share_metrics": "scalar"}, None) == site_settings(kits / "msk").policy


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"share_prototypes": ["NVV"]}, ("config.unknown-name", "policy.share_prototypes")),
        ({"share_metrics": "some"}, ("config.literal-error", "policy.share_metrics")),
        ({"min_class_count": 0}, ("config.greater-than-equal", "policy.min_class_count")),
    ],
)
def test_a_change_that_is_not_valid_leaves_the_file_alone(kits: Path, changes: dict, fault: tuple[str, ...]) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    before = path.read_bytes()
    with raises(*fault):
        set_policy(kits / "msk", changes, CLASS_NAMES)
    assert path.read_bytes() == before
    assert verify(kits / "msk").intact


def test_a_damaged_site_file_is_not_changed(kits: Path) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    path.write_text("data: {source: demo, center: 4}\nploicy: {}\n")
    with raises("config.unknown-key", "ploicy"):
        set_policy(kits / "msk", {"share_prototypes": False}, None)


def test_floors_are_changed_one_by_one(kits: Path) -> None:
    kit = kits / "msk"
    set_policy(kit, {"training": {"min_sites": 4}}, None)
    floors = set_policy(kit, {"training": {"methods": ["fedmr"], "max_jobs_per_day": 2}}, None).training
    assert floors is not None
    assert (floors.min_sites, floors.methods, floors.max_jobs_per_day) == (4, ("fedmr",), 2)
    assert site_settings(kit).policy.training == floors
    assert verify(kit).intact
    with raises("config.unknown-key", "policy.training.min_site", kind=PolicyError):
        set_policy(kit, {"training": {"min_site": 4}}, None)
