"""FLARE's distributed provisioning: keys are made where they stay, and the kit is locked there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import hashes

from fedmr_med.deploy.builder import lock
from fedmr_med.deploy.manifest import certificate, write_seal
from fedmr_med.deploy.preflight import preflight
from fedmr_med.files import write_text
from fedmr_med.jobs.catalog import isic_job
from tests.helpers.kits import SITE, settle

pytestmark = pytest.mark.slow

ADDRESS = {"host": "fl.example.org", "fed_learn_port": 8002, "admin_port": 8002}
SERVER = {"name": "fl.example.org", "type": "server", "org": "coordinator", "fed_learn_port": 8002, "admin_port": 8002}
HOSPITAL = {"name": "msk", "type": "client", "org": "msk", "server": ADDRESS}


def nvflare(folder: Path, *arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("nvflare")), *arguments]
    environment = os.environ | {"HOME": str(folder)}  # it keeps a record of requests there
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=300)


def test_kits_whose_keys_never_travelled_pass_the_preflight(tmp_path: Path) -> None:
    profile = {"name": "fedmr", "scheme": "http", "connection_security": "mtls", "server": ADDRESS}
    write_text(tmp_path / "profile.yml", yaml.safe_dump(profile))
    nvflare(tmp_path, "cert", "init", "--profile", "profile.yml", "-o", "ca")
    fingerprint = certificate(tmp_path / "ca" / "rootCA.pem").fingerprint(hashes.SHA256()).hex(":").upper()
    for participant in (SERVER, HOSPITAL):
        name = str(participant["name"])
        write_text(tmp_path / f"{name}.yaml", yaml.safe_dump({"name": "fedmr", "participants": [participant]}))
        nvflare(tmp_path, "cert", "request", "-p", f"{name}.yaml", "--out", name)
        approved = ("--profile", "profile.yml", "--out", f"{name}.signed.zip")
        nvflare(tmp_path, "cert", "approve", f"{name}/{name}.request.zip", "-c", "ca", *approved)
        checked = ("--fingerprint", f"SHA256:{fingerprint}", "-w", "kits")
        nvflare(tmp_path, "package", f"{name}.signed.zip", "--request-dir", name, *checked)
        kit = tmp_path / "kits" / "fedmr" / "prod_00" / name
        assert any(check.outcome == "fix" for check in run(kit)), "as FLARE packages it, the kit is open"
        lock(kit, server=participant is SERVER)
        if participant is SERVER:
            write_seal(kit)
        else:
            settle(kit, SITE)
        assert [check for check in run(kit) if check.outcome == "fix"] == []


def test_a_kit_prepared_for_docker_stays_locked(provisioned: Path, tmp_path: Path) -> None:
    write_text(tmp_path / "docker.yaml", "runtime: docker\nparent: {docker_image: example.org/fedmr-med:1}\n")
    for name in ("server", "msk"):
        prepared = tmp_path / name
        options = ("--config", "docker.yaml", "--output", str(prepared))
        nvflare(tmp_path, "deploy", "prepare", str(provisioned / name), *options)
        assert [check.name for check in run(prepared) if check.outcome == "fix"] == ["kit"]
        write_seal(prepared)
        checks = run(prepared)
        assert [check for check in checks if check.outcome == "fix"] == []
        assert "startup/start_docker.sh" in checks[0].message, "it says what the site has changed"


def run(kit: Path) -> list:
    return list(preflight(kit, isic_job("fedmr"), data=False, connection=False))
