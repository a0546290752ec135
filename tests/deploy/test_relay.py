"""A relay between hospitals and server: its kit is signed, speaks mutual TLS alone, and `site check` knows it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fedmr_med.config import merge
from fedmr_med.deploy.connection import try_server
from fedmr_med.deploy.manifest import verify
from fedmr_med.deploy.preflight import preflight
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.secure.identity import Certified
from tests.helpers.errors import raises
from tests.helpers.kits import RELAYED, change_json, point_to, provision_small, serving


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kits of a server, a relay, a hospital behind it, and a lead; a test that changes one puts it back."""
    return provision_small(tmp_path_factory.mktemp("relayed"), RELAYED)


def to_fix(kit: Path) -> dict[str, str]:
    checks = preflight(kit, isic_job("fedmr"), data=False, connection=False)
    return {check.name: check.message for check in checks if check.outcome == "fix"}


def test_every_end_of_a_relay_speaks_mutual_tls(relayed: Path) -> None:
    files = ("gateway/startup/fed_relay.json", "gateway/local/comm_config.json", "msk/local/relay__resources.json")
    for name in files:
        assert '"connection_security": "mtls"' in (relayed / name).read_text(), name
    assert json.loads((relayed / files[1]).read_text())["internal"]["resources"]["port"] == 8102


def test_fresh_kits_have_nothing_to_fix(relayed: Path) -> None:
    for name in ("server", "gateway", "msk"):
        assert verify(relayed / name).intact
        assert to_fix(relayed / name) == {}
    checked = {check.name for check in preflight(relayed / "gateway", isic_job("fedmr"), connection=False)}
    assert checked.isdisjoint({"policy", "data", "weights", "GPU"}), "a relay has no patients"
    assert {"kit", "files", "client.crt", "server.crt", "disk", "client"} <= checked


CLEAR = {"connection_security": "clear"}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gateway/startup/fed_relay.json", {"connect_to": CLEAR}, "not mtls"),
        ("gateway/local/comm_config.json", {"internal": {"resources": CLEAR}}, "in the clear"),
        ("gateway/local/comm_config.json", {"internal": None}, "in the clear"),
        ("msk/local/relay__resources.json", {"relay_config": CLEAR}, "not mtls"),
        ("msk/local/relay__resources.json", {"components": [{"id": "spy", "path": "spy.Spy"}]}, "unknown key"),
    ],
)
def test_an_opened_relay_is_found(relayed: Path, name: str, changes: dict[str, Any], message: str) -> None:
    path = relayed / name
    before = path.read_text()
    change_json(path, changes)
    try:
        problems = to_fix(relayed / name.partition("/")[0])
    finally:
        path.write_text(before)
    assert message in problems[path.name]
    assert "was changed" in problems["kit"]


@pytest.mark.parametrize("name", ["client", "server"])
def test_a_relay_does_not_pass_for_a_hospital_in_a_secure_sum(relayed: Path, name: str) -> None:
    """Whoever runs one together with the server would have a site more."""
    startup = relayed / "gateway" / "startup"
    key = serialization.load_pem_private_key((startup / f"{name}.key").read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    signature = key.sign(b"keys", padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
    hospital = Certified(relayed / "msk" / "startup")
    with raises("secure.certificate", "role"):
        hospital.check("gateway", (startup / f"{name}.crt").read_bytes(), b"keys", signature)
    hospital.check("msk", hospital.certificate, b"keys", hospital.sign(b"keys"))


def test_a_start_script_that_was_changed_is_found(relayed: Path) -> None:
    path = relayed / "gateway" / "startup" / "sub_start.sh"
    before = path.read_text()
    path.write_text(before.replace("secure_train=true", "secure_train=false"))
    try:
        assert "startup/sub_start.sh was changed" in to_fix(relayed / "gateway")["kit"]
    finally:
        path.write_text(before)


def test_a_hospital_tries_its_relay_and_the_relay_the_server(relayed: Path) -> None:
    for kit, other in (("msk", "gateway"), ("gateway", "server")):
        with serving(relayed / other) as port:
            point_to(relayed / kit, f"localhost:{port}")
            assert try_server(relayed / kit).name == other
    with serving(relayed / "server") as port:
        point_to(relayed / "msk", f"localhost:{port}")
        with raises("server.wrong-name"):
            try_server(relayed / "msk")


@pytest.mark.parametrize(
    ("which", "changes", "fault"),
    [
        ("gateway", {"listening_host": {"conn_security": "mtls"}}, ("project.form", "listening_host")),
        ("gateway", {"listening_host": {"port": None}}, ("project.form", "listening_host")),
        ("gateway", {"listening_host": None}, ("project.form", "listening_host")),
        ("gateway", {"listening_host": CLEAR}, ("project.form", "connection_security")),
        ("gateway", {"listening_host": {"scheme": "tcp"}}, ("project.form", "scheme")),
        ("gateway", {"connect_to": CLEAR}, ("project.form", "connection_security")),
        ("gateway", {"name": "gate\nway"}, ("config.name",)),
        ("msk", {"connect_to": CLEAR}, ("project.form", "connection_security")),
        ("msk", {"connect_to": {"name": "nobody"}}, ("project.provision",)),
    ],
)
def test_a_relay_that_would_be_open_is_refused(
    tmp_path: Path, which: str, changes: dict[str, Any], fault: tuple[str, ...]
) -> None:
    project = yaml.safe_load(RELAYED)
    project["participants"] = [
        merge(entry, changes) if entry["name"] == which else entry for entry in project["participants"]
    ]
    with raises(*fault):
        provision_small(tmp_path, yaml.safe_dump(project))
