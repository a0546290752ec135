"""Renewal: new certificates for those who need them, the same root, and no policy touched."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedmr_med.deploy.manifest import certificate, verify
from fedmr_med.deploy.provision import provision
from fedmr_med.deploy.renewal import expiries, renew
from fedmr_med.files import write_text
from tests.helpers.errors import raises
from tests.helpers.kits import PROJECT, project_in


@pytest.fixture
def federation(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of a federation with its first kits, reached under another name than the project file says."""
    return tmp_path, provision(*project_in(tmp_path), host="fl.example.org", port=4711)


def renewed(folder: Path, *names: str, **options: timedelta) -> tuple[Path, tuple[str, ...]]:
    return renew(folder / "project.yml", folder / "workspace", folder / "sites", names=names, **options)


def serial(kits: Path, name: str, file: str = "client.crt") -> int:
    return certificate(kits / name / "startup" / file).serial_number


def test_the_named_ones_get_new_certificates_from_the_same_root(federation: tuple[Path, Path]) -> None:
    folder, old = federation
    new, names = renewed(folder, "msk", "server")
    assert names == ("msk", "server")
    assert serial(new, "msk") != serial(old, "msk")
    assert serial(new, "server", "server.crt") != serial(old, "server", "server.crt")
    assert serial(new, "lead@example.org") == serial(old, "lead@example.org")
    assert serial(new, "msk", "rootCA.pem") == serial(old, "msk", "rootCA.pem")
    assert not (new / "msk" / "local" / "site.yaml").exists()
    assert verify(new / "msk").intact


def test_a_later_run_keeps_the_address_of_the_first(federation: tuple[Path, Path]) -> None:
    folder, _ = federation
    new, _ = renewed(folder, "msk")
    servers = json.loads((new / "msk" / "startup" / "fed_client.json").read_text())["servers"]
    assert servers[0]["service"]["target"] == "fl.example.org:4711"


def test_without_names_those_that_expire_soon_are_renewed(federation: tuple[Path, Path]) -> None:
    folder, old = federation
    with raises("renewal.not-due"):
        renewed(folder)
    new, names = renewed(folder, within=timedelta(days=400))
    assert names == ("lead@example.org", "msk", "server")
    assert serial(new, "lead@example.org") != serial(old, "lead@example.org")


def test_a_name_nobody_has_is_refused_and_nothing_is_lost(federation: tuple[Path, Path]) -> None:
    folder, old = federation
    before = (old.parent / "state" / "cert.json").read_bytes()
    with raises("renewal.unknown-participant"):
        renewed(folder, "msk", "mars")
    write_text(folder / "project.yml", PROJECT.replace("api_version: 3", "api_version: 2"))
    with raises("project.provision"):
        renewed(folder, "msk")
    assert (old.parent / "state" / "cert.json").read_bytes() == before


def test_the_coordinator_sees_when_whose_certificate_expires(federation: tuple[Path, Path]) -> None:
    folder, old = federation
    found = expiries(folder / "workspace")
    assert set(found) == {"lead@example.org", "msk", "server", "root"}
    assert found["msk"] == certificate(old / "msk" / "startup" / "client.crt").not_valid_after_utc
    assert found["root"] > datetime.now(UTC)


def test_keys_and_kits_are_for_their_owner_alone(federation: tuple[Path, Path]) -> None:
    _, kits = federation
    scripts = set(kits.rglob("*.sh"))  # FLARE opens these to all; the folders around them are closed
    found = set(kits.parent.rglob("*")) - scripts
    assert [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
