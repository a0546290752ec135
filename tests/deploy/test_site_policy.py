"""Changing the policy in a kit: one file, sealed, comments kept."""

from pathlib import Path

import pytest

from fedmr_med.data.flamby_isic import CLASS_NAMES
from fedmr_med.deploy.manifest import verify
from fedmr_med.deploy.site_policy import explain, policy_of, set_policy
from fedmr_med.errors import ConfigError, PolicyError
from fedmr_med.privacy.policy import SitePolicy


def test_a_change_is_written_and_sealed_and_keeps_comments(kits: Path) -> None:
    kit = kits / "msk"
    policy = set_policy(kit, {"share_prototypes": False, "allow_submit_model": False}, CLASS_NAMES)
    assert policy == policy_of(kit)
    assert policy.share_prototypes is False
    text = (kit / "local" / "site.yaml").read_text()
    assert "# Prototypes of these classes may leave." in text
    assert verify(kit).sealed == ("local/site.yaml",)


def test_per_class(kits: Path) -> None:
    assert set_policy(kits / "msk", {"share_prototypes": ["NV", "MEL"]}, CLASS_NAMES).share_prototypes == ("NV", "MEL")
    assert policy_of(kits / "msk").share_prototypes == ("NV", "MEL")


def test_a_file_in_another_style_is_changed_as_well(kits: Path) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    path.write_text("data: {source: demo, center: 4}\npolicy: {share_prototypes: true, share_metrics: scalar}\n")
    assert set_policy(kits / "msk", {"share_prototypes": False}, None) == policy_of(kits / "msk")
    path.write_text("data: {source: demo, center: 4}\n")
    assert set_policy(kits / "msk", {"share_metrics": "scalar"}, None) == policy_of(kits / "msk")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share_prototypes": ["NVV"]}, "'NVV' is not one of the classes"),
        ({"share_metrics": "some"}, "share_metrics"),
        ({"min_class_count": 0}, "min_class_count"),
    ],
)
def test_a_change_that_is_not_valid_leaves_the_file_alone(kits: Path, changes: dict, message: str) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    before = path.read_bytes()
    with pytest.raises(PolicyError, match=message):
        set_policy(kits / "msk", changes, CLASS_NAMES)
    assert path.read_bytes() == before
    assert verify(kits / "msk").intact


def test_a_damaged_site_file_is_not_changed(kits: Path) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    path.write_text("data: {source: demo, center: 4}\nploicy: {}\n")
    with pytest.raises(ConfigError, match="ploicy"):
        set_policy(kits / "msk", {"share_prototypes": False}, None)


def test_explain_says_what_leaves() -> None:
    closed = "\n".join(explain(SitePolicy()))
    assert "Prototypes: none leave" in closed
    assert "Metrics: none leave" in closed
    some = "\n".join(explain(SitePolicy(share_prototypes=("NV",), min_class_count=7, share_metrics="scalar")))
    assert "the classes NV" in some
    assert "at least 7" in some
    assert "accuracy" in some


@pytest.mark.parametrize("policy", [SitePolicy(), SitePolicy(share_prototypes=True, share_metrics="per_class")])
def test_explain_does_not_promise_what_the_policy_cannot_keep(policy: SitePolicy) -> None:
    said = "\n".join(explain(policy))
    assert "The trained model can reveal" in said
    assert "SECURITY.md" in said
    assert ("how many test images of each shared class" in said) == (policy.share_metrics == "per_class")


def test_explain_says_what_is_demanded_of_jobs() -> None:
    said = "\n".join(explain(SitePolicy()))
    assert "at least 10 steps a round, learning rate 1e-05 to 0.1 and at least 3 sites" in said
    assert "harder, not impossible" in said
    assert "any settings of a job are taken" in "\n".join(explain(SitePolicy(training=None)))
