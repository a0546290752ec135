"""Units, image and compose file: well-formed, and every path in them is one that exists where it says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helpers import REPOSITORY

SYSTEMD = REPOSITORY / "provisioning" / "systemd"
CONTAINER = REPOSITORY / "provisioning" / "container"


@pytest.fixture
def installed(kits: Path, tmp_path: Path) -> Path:
    """A root folder laid out as the units expect it, with real kits."""
    root = tmp_path / "root"
    for role, name in (("site", "msk"), ("server", "server")):
        shutil.copytree(kits / name, root / "srv" / "fedmr" / role)
    program = root / "opt" / "fedmr" / "bin" / "fedmr-med"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return root


def unit(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", path.read_text(), flags=re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("name", ["fedmr-site.service", "fedmr-server.service", "fedmr-health.service"])
def test_every_program_a_unit_starts_exists(installed: Path, name: str) -> None:
    content = unit(SYSTEMD / name)
    for command in (*content["ExecStart"], *content.get("ExecStartPre", [])):
        program = installed / command.split()[0].lstrip("/")
        assert program.stat().st_mode & 0o100, command
    for folder in (*content.get("WorkingDirectory", []), *content.get("ReadWritePaths", [])):
        assert (installed / folder.lstrip("/")).is_dir()


@pytest.mark.parametrize("name", ["fedmr-site.service", "fedmr-server.service"])
def test_a_service_has_a_user_of_its_own_restarts_and_is_bounded(name: str) -> None:
    content = unit(SYSTEMD / name)
    assert content["User"] == ["fedmr"]
    assert content["Restart"] == ["always"]
    assert content["UMask"] == ["0077"]
    assert content["MemoryMax"]
    assert content["ProtectSystem"] == ["strict"]
    assert content["NoNewPrivileges"] == ["true"]
    assert content["CapabilityBoundingSet"] == [""]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("path", sorted(SYSTEMD.iterdir()), ids=lambda path: path.name)
def test_systemd_itself_finds_nothing_wrong(installed: Path, path: Path) -> None:
    folder = installed / "units"
    folder.mkdir()
    for other in SYSTEMD.iterdir():
        text = re.sub(r"(?<=[=: ])/(opt|srv)/fedmr", lambda found: f"{installed}/{found[1]}/fedmr", other.read_text())
        (folder / other.name).write_text(text.replace("User=fedmr", "User=root").replace("Group=fedmr", "Group=root"))
    command = ["systemd-analyze", "verify", "--man=no", str(folder / path.name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert [line for line in done.stderr.splitlines() if path.stem in line] == []


def test_the_image_copies_what_exists_and_no_kit(installed: Path) -> None:
    text = (CONTAINER / "Containerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (.*)$", text, flags=re.MULTILINE) for name in line.split()[:-1]]
    assert all((REPOSITORY / name).exists() for name in copied)
    ignored = (REPOSITORY / ".dockerignore").read_text().split()
    assert {f"!{name}" for name in copied} == {entry for entry in ignored if entry.startswith("!")}
    command = re.search(r'^CMD \["bash", "/kit/(.*)", "--once"\]$', text, flags=re.MULTILINE)
    assert command is not None
    assert (installed / "srv" / "fedmr" / "site" / command[1]).exists()


def test_compose_gives_each_service_its_kit_and_no_rights(provisioned: Path) -> None:
    content = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    assert set(content["services"]) == {"server", "site"}
    for service in content["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert service["restart"] == "unless-stopped"
        assert service["mem_limit"]
        assert service["volumes"][0].startswith("${KIT:?")
        context = (CONTAINER / service["build"]["context"]).resolve()
        assert (context / service["build"]["dockerfile"]).is_file()
    port = re.search(r"fed_learn_port: (\d+)", (REPOSITORY / "provisioning" / "project.yml").read_text())
    assert port is not None
    assert content["services"]["server"]["ports"] == [f"{port[1]}:{port[1]}"]
    images = [volume for volume in content["services"]["site"]["volumes"] if ":/images" in volume]
    assert all(volume.endswith(":ro") for volume in images)
