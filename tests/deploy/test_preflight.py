"""The preflight: one line per check, and each fault is found and named."""

import json
from pathlib import Path

import pytest

from fedmr_med.deploy.preflight import Check, preflight
from fedmr_med.deploy.site_policy import set_policy
from fedmr_med.jobs.catalog import isic_job
from tests.helpers.federation import free_port
from tests.helpers.kits import expire, point_to, serving


def run(kit: Path, **options: bool) -> dict[str, Check]:
    """Return the checks by name; the quick ones unless asked."""
    checks = list(preflight(kit, isic_job("fedmr"), **({"data": False, "connection": False} | options)))
    return {check.name: check for check in checks}


def to_fix(kit: Path, **options: bool) -> dict[str, str]:
    return {name: check.message for name, check in run(kit, **options).items() if check.outcome == "fix"}


def test_a_fresh_kit_with_data_and_a_server_passes(kits: Path) -> None:
    with serving(kits / "server") as port:
        point_to(kits / "msk", f"localhost:{port}")
        checks = run(kits / "msk", data=True, connection=True)
    assert checks["data"].message.startswith("generated pictures (demo): ")
    assert checks["connection"].outcome == "pass"
    assert "kit" in to_fix(kits / "msk"), "the test itself has changed the address in the kit"
    expected = {"authorization.json", "resources.json", "privacy.json", "client.crt", "rootCA.pem", "disk", "memory"}
    assert expected <= {name for name, check in checks.items() if check.outcome == "pass"}
    assert {"GPU", "weights", "policy", "scores", "client", "bad images"} <= checks.keys()


def test_a_fresh_kit_has_nothing_to_fix(provisioned: Path) -> None:
    assert to_fix(provisioned / "msk") == {}
    assert to_fix(provisioned / "server") == {}


def test_a_persons_kit_is_named_as_such(provisioned: Path) -> None:
    """FEDMR_MED_KIT is often set to it."""
    (problem,) = to_fix(provisioned / "lead@example.org").values()
    assert "is a person's" in problem


def test_a_tampered_kit(kits: Path) -> None:
    path = kits / "msk" / "local" / "privacy.json"
    path.write_text(path.read_text().replace("task_result_filters", "task_result_filter"))
    problems = to_fix(kits / "msk")
    assert "local/privacy.json was changed" in problems["kit"]
    assert "unknown key 'task_result_filter'" in problems["privacy.json"]


def test_a_missing_or_broken_policy(kits: Path) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    path.write_text(path.read_text().replace("share_metrics", "shares_metrics"))
    assert "shares_metrics: is not a known key" in to_fix(kits / "msk")["policy"]
    path.unlink()
    assert "does not exist" in to_fix(kits / "msk")["policy"]


def test_a_job_that_this_hospital_would_refuse(kits: Path) -> None:
    """The hospital's decision, so nothing to fix; but it should know before the coordinator does."""
    kit = kits / "msk"
    assert run(kit)["training"].outcome == "pass"
    set_policy(kit, {"training": {"min_sites": 5}}, None)
    found = run(kit)["training"]
    assert found.outcome == "note"
    assert "isic_fedmr would be refused here: federation.min_sites is 4" in found.message
    set_policy(kit, {"training": {"min_sites": 3}, "training_privacy": {"epsilon": 8}}, None)
    assert "the job has no train.private" in run(kit)["training"].message
    set_policy(kit, {"training_privacy": None}, None)
    set_policy(kit, {"training": {"min_sites": 3, "min_updates": 1000}}, None)
    assert run(kit)["training"].outcome == "pass", "how many steps it makes depends on the data"
    found = run(kit, data=True)["training"]
    assert "policy.training.min_updates asks for 1000" in found.message
    set_policy(kit, {"training": {"min_updates": 10}}, None)
    (kit / "local" / "site.yaml").write_text("data: {source: demo, center: 4}\npolicy: {training: null}\n")
    assert "any settings" in run(kit)["training"].message


def test_opened_authorization_and_class_list(kits: Path) -> None:
    local = kits / "msk" / "local"
    (local / "authorization.json").write_text('{"format_version": "1.0", "permissions": {"project_admin": "any"}}')
    (local / "resources.json").write_text('{"class_allow_list": ["*"], "allow_log_streaming": false}')
    problems = to_fix(kits / "msk")
    assert "project_admin has all rights at once" in problems["authorization.json"]
    assert 'is "*"' in problems["resources.json"]


def test_files_that_flare_would_read_as_well(kits: Path) -> None:
    kit = kits / "msk"
    (kit / "local" / "custom").mkdir()
    (kit / "local" / "spy__j_resources.json").write_text("{}")
    (kit / "startup" / "client.key").chmod(0o644)
    problem = to_fix(kit)["files"]
    for part in (
        "local/custom exists",
        "spy__j_resources.json would add components",
        "client.key can be read by others",
    ):
        assert part in problem


def test_unsigned_jobs(kits: Path) -> None:
    path = kits / "msk" / "startup" / "fed_client.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"require_signed_jobs": False}))
    assert "anybody's job" in to_fix(kits / "msk")["fed_client.json"]


def test_an_expired_certificate_and_a_clock_that_is_off(kits: Path) -> None:
    with serving(kits / "server") as port:  # its clock stands still, in July
        point_to(kits / "msk", f"localhost:{port}")
        assert "apart from the server's" in to_fix(kits / "msk", connection=True)["clock"]
    expire(kits / "msk")
    problems = to_fix(kits / "msk", connection=True)
    assert "expired on" in problems["client.crt"]
    assert "refuses this kit: its certificate expired on" in problems["connection"]


def test_no_certificate_at_all(kits: Path) -> None:
    for name in ("client.crt", "rootCA.pem"):
        (kits / "msk" / "startup" / name).unlink()
    assert "holds no" in to_fix(kits / "msk")["certificate"]


def test_a_server_that_is_not_there(kits: Path) -> None:
    point_to(kits / "msk", f"localhost:{free_port()}")
    assert "cannot be reached" in to_fix(kits / "msk", connection=True)["connection"]


def test_data_that_is_missing(kits: Path) -> None:
    (kits / "msk" / "local" / "site.yaml").write_text(
        "data: {source: flamby_isic, center: 4, root: /no/such/folder}\npolicy: {}\n"
    )
    assert "/no/such/folder" in to_fix(kits / "msk", data=True)["data"]


def test_the_servers_weights_file(provisioned: Path) -> None:
    job = isic_job("fedmr").override({"model": {"options": {"pretrained": "/no/such/weights.pth"}}})
    found = {check.name: check for check in preflight(provisioned / "server", job)}
    assert found["weights"].outcome == "fix"
    assert "/no/such/weights.pth" in found["weights"].message


@pytest.mark.parametrize("name", ["fed_client.json", "client.key"])
def test_a_kit_without_its_files_does_not_end_in_a_stack_trace(kits: Path, name: str) -> None:
    (kits / "msk" / "startup" / name).unlink()
    problems = to_fix(kits / "msk", connection=True)
    assert "connection" in problems
