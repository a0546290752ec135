"""Provisioning: every kit is locked and signed; a project that cannot work is refused before anything is written."""

import json
from pathlib import Path

import pytest
import yaml

from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.deploy import kit, lint
from fedmr_med.deploy.manifest import verify
from fedmr_med.deploy.provision import provision
from fedmr_med.errors import ConfigError
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises
from tests.helpers.kits import PROJECT, SITE, project_in


def test_the_checked_in_project_names_server_hospitals_admin_and_lead(tmp_path: Path) -> None:
    folder = provision(
        REPOSITORY / "provisioning" / "project.yml", tmp_path, REPOSITORY / "sites", host="fl.example.org", port=4711
    )
    assert {path.name for path in folder.iterdir()} == {
        "server",
        *HOSPITALS,
        "admin@coordinator.org",
        "lead@coordinator.org",
    }
    target = json.loads((folder / "bcn" / "startup" / "fed_client.json").read_text())["servers"][0]["service"]["target"]
    assert target == "fl.example.org:4711"
    for name in ("server", *HOSPITALS):
        assert verify(folder / name).intact
    again = provision(REPOSITORY / "provisioning" / "project.yml", tmp_path, REPOSITORY / "sites")
    assert again != folder
    key = "startup/client.key"
    assert (again / "bcn" / key).read_bytes() == (folder / "bcn" / key).read_bytes(), "a second run keeps the keys"


def test_kits_are_locked(provisioned: Path) -> None:
    for name, server in (("msk", False), ("server", True)):
        local = provisioned / name / "local"
        for file in (kit.RESOURCES, f"{kit.RESOURCES}.default"):
            assert lint.lint_resources(kit.read_json(local / file), server=server) == []
        for file in (kit.AUTHORIZATION, f"{kit.AUTHORIZATION}.default"):
            assert lint.lint_authorization(kit.read_json(local / file)) == []
    assert lint.lint_privacy(kit.read_json(provisioned / "msk" / "local" / kit.PRIVACY)) == []
    assert (provisioned / "msk" / "local" / kit.SITE_EXAMPLE).read_text() == SITE


def test_the_server_keeps_its_jobs_in_its_workspace(provisioned: Path) -> None:
    text = (provisioned / "server" / "local" / kit.RESOURCES).read_text()
    assert "/tmp" not in text
    assert "fedmr_med.flare.stores.WorkspaceJobManager" in text


def test_every_class_on_the_lists_exists_and_every_class_of_a_job_is_on_them() -> None:
    from importlib import import_module

    of_kits = (kit.FILTER, kit.GUARD, kit.AUDIT, kit.SITE_START, kit.SERVER_START)
    for path in (*kit.SITE_CLASSES, *kit.SERVER_CLASSES, *of_kits):
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name)
    for meta in (REPOSITORY / "jobs").glob("*/meta.json"):
        config = meta.parent / "app" / "config"
        server = json.loads((config / "config_fed_server.json").read_text())
        named = {part["path"] for part in (*server["workflows"], *server["components"])}
        assert named == set(kit.SERVER_CLASSES)
        client = json.loads((config / "config_fed_client.json").read_text())
        assert {part["executor"]["path"] for part in client["executors"]} == set(kit.SITE_CLASSES)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"participants": None}, ("project.form", "participants")),
        ({"builders": []}, ("project.form", "builders")),
        ({"api_version": 2}, ("project.provision",)),
    ],
)
def test_a_project_that_cannot_work_is_refused(tmp_path: Path, change: dict, fault: tuple[str, ...]) -> None:
    project = yaml.safe_dump(yaml.safe_load(PROJECT) | change)
    with raises(*fault):
        provision(*project_in(tmp_path, project))


def test_a_hospital_without_a_valid_site_file_is_refused(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    path = tmp_path / "sites" / "msk" / "site.yaml"
    path.write_text(SITE.replace("share_metrics", "share_metric"))
    with pytest.raises(ConfigError, match=r"policy\.share_metric: is not a known key"):
        provision(*project)
    path.unlink()
    with pytest.raises(ConfigError, match=r"msk/site\.yaml does not exist"):
        provision(*project)
    assert not (tmp_path / "workspace").exists()
