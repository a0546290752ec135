"""``fedmr-med deploy``: what can be said without a running federation; the rest is in tests/e2e."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedmr_med.deploy.acts import ACTS_FILE
from tests.helpers import REPOSITORY
from tests.helpers.command_line import call
from tests.helpers.kits import PROJECT, SITE


@pytest.fixture
def options(tmp_path: Path) -> tuple[object, ...]:
    """Options that name a project of one hospital and a workspace."""
    (tmp_path / "project.yml").write_text(PROJECT)
    (tmp_path / "sites" / "msk").mkdir(parents=True)
    (tmp_path / "sites" / "msk" / "site.yaml").write_text(SITE)
    return ("--project", tmp_path / "project.yml", "--sites", tmp_path / "sites", "-w", tmp_path / "ws")


def test_provision_prints_where_the_kits_are(options: tuple[object, ...]) -> None:
    content = json.loads(call("deploy", "provision", *options, "--json").stdout)
    assert content["kits"] == ["lead@example.org", "msk", "server"]
    assert (Path(content["folder"]) / "msk" / "startup" / "start.sh").exists()


def test_the_coordinators_acts_are_a_journal(options: tuple[object, ...], tmp_path: Path) -> None:
    call("deploy", "provision", *options)
    call("deploy", "renew", *options, "msk")
    lines = call("deploy", "log", tmp_path / "ws").stdout.splitlines()
    assert [line.split()[2] for line in lines] == ["provision:", "provision:", "renew:"]
    assert "participants ['msk']" in lines[-1]
    path = tmp_path / "ws" / ACTS_FILE
    path.write_text(path.read_text().replace('"kits": "prod_01"', '"kits": "prod_09"', 1))
    assert "NOT INTACT" in call("deploy", "log", tmp_path / "ws", code=1).stdout


@pytest.mark.slow
def test_a_server_that_is_not_there_gives_a_message_and_code_2(provisioned: Path, tmp_path: Path) -> None:
    job, kit = REPOSITORY / "jobs" / "isic_fedmr", provisioned / "lead@example.org"
    words = ["-c", "from fedmr_med.cli import main; main()", "deploy", "submit", job, "--kit", kit]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr
    assert "fedmr-med: The server localhost:8002 does not answer" in done.stderr
    assert "Traceback" not in done.stderr
